/* SPDX-License-Identifier: BSD-2-Clause
 * What every test program of this folder includes. */
#ifndef TESTS_UNIT_CLI_UNIT_H
#define TESTS_UNIT_CLI_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
