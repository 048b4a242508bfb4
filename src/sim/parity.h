/* SPDX-License-Identifier: MIT */
/* One number for all that a random world comes to, so that two builds of this code (a
 * native one and the page's) can be compared. */
#ifndef PICKET_SIM_PARITY_H
#define PICKET_SIM_PARITY_H

#include "sim/picture.h"
#include "sim/script.h"

/* Script, trace and verdict; of every eighth seed also picture and sentences, which take
 * longer than all the rest. */
uint64_t pk_parity(const struct pk_world_config *c);

#endif
