/* SPDX-License-Identifier: BSD-2-Clause
 * SIFTR, the flow log: a record of each TCP packet with the state of its connection, to a file.
 *
 * All is done through the knobs net.inet.siftr.*; docs/siftr.md is the manual. */
#ifndef WEIR_MEASURE_SIFTR_H
#define WEIR_MEASURE_SIFTR_H

#include "base/stack.h"

/* Give s its flow log, which is off. By the owner, once, before the stack is used; it goes with the
 * stack. 0 or -ENOMEM. */
int siftr_attach(struct weir_stack *s) NODISCARD;
/* Wait until logs of s that were switched off are in their files, as far as these take it. Without
 * ownership: whoever set a knob calls it when he has let go. Cheap when there is nothing. */
void siftr_settle(struct weir_stack *s);

#endif
