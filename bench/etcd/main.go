// SPDX-License-Identifier: MIT

// A lock load on etcd, the same that `picket bench` puts on Picket: one request of each
// client in flight, every answer timed, one JSON object at the end.
//
//	etcd-load ENDPOINTS latency|pairs|mutex|handoff CLIENTS SECONDS
//
// latency and pairs use the cheapest lock etcd has: a key on a lease, created by a
// transaction if it is absent, and deleted. mutex and handoff use concurrency.Mutex, which
// is how etcd queues waiters: each with a lock of its own, or all with the same.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

type series struct {
	sync.Mutex
	at []int64
}

func (s *series) note(d time.Duration) {
	s.Lock()
	s.at = append(s.at, d.Nanoseconds())
	s.Unlock()
}

func (s *series) summary() map[string]int64 {
	sort.Slice(s.at, func(i, j int) bool { return s.at[i] < s.at[j] })
	n := len(s.at)
	pick := func(permille int) int64 {
		if n == 0 {
			return 0
		}
		i := n * permille / 1000
		if i >= n {
			i = n - 1
		}
		return s.at[i]
	}
	return map[string]int64{"count": int64(n), "p50_ns": pick(500), "p99_ns": pick(990)}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd-load:", err)
		os.Exit(1)
	}
}

func connect(endpoints []string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	must(err)
	return c
}

var acquire, release, pair, handoff series

// One client with a lock of its own.
func pairs(c *clientv3.Client, number int, end time.Time) {
	ctx := context.Background()
	lease, err := c.Grant(ctx, 60)
	must(err)
	key := fmt.Sprintf("bench/%d", number)
	for time.Now().Before(end) {
		began := time.Now()
		answer, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "held", clientv3.WithLease(lease.ID))).
			Commit()
		must(err)
		if !answer.Succeeded {
			must(fmt.Errorf("%s is taken", key))
		}
		held := time.Now()
		acquire.note(held.Sub(began))
		_, err = c.Delete(ctx, key)
		must(err)
		release.note(time.Since(held))
		pair.note(time.Since(began))
	}
}

// One client with a mutex of its own.
func mutex(c *clientv3.Client, number int, end time.Time) {
	ctx := context.Background()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	must(err)
	m := concurrency.NewMutex(s, fmt.Sprintf("bench/mutex/%d", number))
	for time.Now().Before(end) {
		began := time.Now()
		must(m.Lock(ctx))
		held := time.Now()
		acquire.note(held.Sub(began))
		must(m.Unlock(ctx))
		release.note(time.Since(held))
		pair.note(time.Since(began))
	}
}

// One of many who want the same lock.
func queue(c *clientv3.Client, end time.Time, released *int64) {
	ctx := context.Background()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	must(err)
	m := concurrency.NewMutex(s, "bench/one")
	for time.Now().Before(end) {
		must(m.Lock(ctx))
		now := time.Now().UnixNano()
		if before := atomic.LoadInt64(released); before != 0 {
			handoff.note(time.Duration(now - before))
		}
		atomic.StoreInt64(released, time.Now().UnixNano())
		must(m.Unlock(ctx))
	}
}

func main() {
	if len(os.Args) != 5 {
		must(fmt.Errorf("ENDPOINTS latency|pairs|mutex|handoff CLIENTS SECONDS"))
	}
	endpoints := strings.Split(os.Args[1], ",")
	clients, err := strconv.Atoi(os.Args[3])
	must(err)
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	must(err)
	var connections []*clientv3.Client
	for i := 0; i < clients; i++ {
		connections = append(connections, connect(endpoints))
	}
	var all sync.WaitGroup
	var released int64
	began := time.Now()
	end := began.Add(time.Duration(seconds * float64(time.Second)))
	for i, c := range connections {
		all.Add(1)
		go func(i int, c *clientv3.Client) {
			defer all.Done()
			switch os.Args[2] {
			case "handoff":
				queue(c, end, &released)
			case "mutex":
				mutex(c, i, end)
			default:
				pairs(c, i, end)
			}
		}(i, c)
	}
	all.Wait()
	elapsed := time.Since(began).Seconds()
	out := map[string]interface{}{"load": os.Args[2], "clients": clients}
	for name, s := range map[string]*series{"acquire": &acquire, "release": &release,
		"pair": &pair, "handoff": &handoff} {
		if len(s.at) > 0 {
			out[name] = s.summary()
		}
	}
	out["per_second"] = int(float64(len(pair.at)+len(handoff.at)) / elapsed)
	must(json.NewEncoder(os.Stdout).Encode(out))
}
