/* SPDX-License-Identifier: BSD-2-Clause
 * `weir siftr on`, `off` and `status`: the flow log of a running instance. */
#ifndef WEIR_CLI_SIFTR_CONTROL_H
#define WEIR_CLI_SIFTR_CONTROL_H

#include <stdbool.h>

/* Whether the first argument that is no option, nor its value, is one of these words. */
bool siftr_control_is_meant(int argc, char **argv);
int siftr_control(int argc, char **argv); /* the exit code */

#endif
