/* SPDX-License-Identifier: BSD-2-Clause
 * The lock profile as JSON, for `weir lockstat`: it takes two such pictures and shows what lies
 * between them. */
#include "inspect.h"
#include "measure/lock_stats.h"

#include <jansson.h>
#include <stdlib.h>

int inspect_locks(struct inspect_run *r)
{
    struct lock_stats stats;
    char *text = NULL;
    if (lock_stats_take(&stats) == 0) {
        json_t *o = lock_stats_to_json(&stats, 0);
        json_object_set_new(o, "enabled", json_boolean(lock_prof_is_on()));
        text = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        lock_stats_free(&stats);
    }
    if (text == NULL) {
        fputs("lockstat: out of memory\n", r->err);
        return 1;
    }
    fprintf(r->out, "%s\n", text);
    free(text);
    return 0;
}
