/* SPDX-License-Identifier: MIT */
/*
 * The reference model of the lock machine: slow, obvious, written from src/core/README.md
 * alone and sharing no code with src/core but the shapes of commands and effects. Flat
 * arrays, linear scans, nothing derived is stored: a lock is whatever the claims and
 * closings say of it.
 *
 * The differential test steps machine and model with the same commands and wants the same
 * effects, field by field. Comments cite the README's rules.
 */
#ifndef PICKET_TEST_MODEL_H
#define PICKET_TEST_MODEL_H

#include <stdint.h>

#include "core/command.h"
#include "core/effect.h"
#include "core/machine.h"

struct model;

struct model *model_new(void);
void model_free(struct model *m);

/* As pk_machine_step. */
void model_step(struct model *m, const struct pk_command *c, struct pk_effects *out);

/* As the functions of machine.h with the same names. */
uint64_t model_clock(const struct model *m);
uint64_t model_next_deadline(const struct model *m);
uint64_t model_last_token(const struct model *m);
uint64_t model_version(const struct model *m);
bool model_version_is_held(const struct model *m);
struct pk_stats model_stats(const struct model *m);
enum pk_claim_state model_claim(const struct model *m, uint64_t lease, uint64_t request,
                                uint64_t *token);
enum pk_end model_lease_end(const struct model *m, uint64_t lease);

#endif
