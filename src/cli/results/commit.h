/* SPDX-License-Identifier: BSD-2-Clause
 * The commit this was built from. */
#ifndef WEIR_CLI_RESULTS_COMMIT_H
#define WEIR_CLI_RESULTS_COMMIT_H

extern const char build_commit[]; /* "unknown" outside of a git tree; ends in -dirty with changes */

#endif
