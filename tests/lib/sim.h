/* SPDX-License-Identifier: BSD-2-Clause
 * Whole stacks in virtual time, for tests: one thread, no wall clock, the same every run.
 *
 * A blocking weir_* call inside a test runs the simulation until it can return. */
#ifndef WEIR_TESTS_SIM_H
#define WEIR_TESTS_SIM_H

#include "ip/netif.h"
#include "link/link.h"
#include "stack.h"
#include "weir/socket.h"
#include <stdio.h>
#include <stdlib.h>

#define SIM_START_NS (1000 * NS_PER_S)

struct sim;

/* One simulation at a time in a process. start_ns 0: SIM_START_NS. */
struct sim *sim_create(uint64_t seed, uint64_t start_ns);
/* Destroys all stacks and fails the process if an mbuf or a byte of the stacks' memory has not
 * come back. */
void sim_destroy(struct sim *sim);
struct weir_stack *sim_stack(struct sim *sim, const char *name);
uint64_t sim_now(const struct sim *sim);
/* A blocking call steps its own stacks as a thread does that drives them (stack_step_for). */
void sim_drive(struct sim *sim, bool on);
/* Run everything until now + ns. */
void sim_run(struct sim *sim, uint64_t ns);
/* Run until fn(ctx), at most limit_ns. True when it came true. */
bool sim_run_until(struct sim *sim, bool (*fn)(void *ctx), void *ctx, uint64_t limit_ns);
/* Process what is due now without moving the clock. */
void sim_settle(struct sim *sim);
/* The next event of any stack; false when nothing will ever happen. Moves the clock to it and
 * runs it. */
bool sim_step(struct sim *sim, uint64_t until_ns);
/* The next n-th allocation of the simulation's stacks fails (0: the next one; negative: none). */
void sim_fail_alloc_after(struct sim *sim, int64_t n);
/* Memory that the simulation's stacks hold, buffers apart. */
int64_t sim_bytes(const struct sim *sim);
/* Set a sysctl; fails the test when refused. */
void sim_sysctl(struct weir_stack *s, const char *name, const char *value);
uint64_t sim_counter(struct weir_stack *s, const char *name);
/* Two stacks joined by a memory link, each end wrapped in the emulator: options as in a link
 * specification ("loss=1%,delay=20ms,reorder=10%:2,seed=3"), applied to both directions.
 * Addresses 10.0.0.1/24, fd00::1/64 and .2, ::2. */
void sim_join(struct sim *sim, struct weir_stack *a, struct weir_stack *b, const char *options);

#endif
