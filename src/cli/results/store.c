/* SPDX-License-Identifier: BSD-2-Clause
 * The database: where it is, how it is opened, its schema. */
#include "store.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define APPLICATION_ID 0x57656972 /* "Weir" */
#define BUSY_MS 10000
#define WAL_TRIES 200 /* of WAL_PAUSE_US each: to switch takes the database alone */
#define WAL_PAUSE_US 20000

/* Step i leads from schema i to schema i + 1. Never change one that was released: add another. */
static const char *const step[STORE_SCHEMA] = {
    "CREATE TABLE run("
    " id INTEGER PRIMARY KEY AUTOINCREMENT," /* AUTOINCREMENT: a number is never used again */
    " kind TEXT NOT NULL,"                   /* bench, ab, repro */
    " test TEXT NOT NULL,"
    " at REAL NOT NULL,"      /* when it was recorded first; seconds since 1970 */
    " state TEXT NOT NULL,"   /* complete, interrupted, unfinished */
    " command TEXT NOT NULL," /* as typed */
    " host TEXT NOT NULL, cpu TEXT NOT NULL, kernel TEXT NOT NULL,"
    " version TEXT NOT NULL, build TEXT NOT NULL," /* build: the commit */
    " doc TEXT);" /* of the whole; NULL: that of its only sample is it */
    "CREATE INDEX run_at ON run(at);"
    "CREATE TABLE side("
    " run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " side INTEGER NOT NULL," /* 0: a */
    " label TEXT NOT NULL,"
    " metric TEXT NOT NULL,"
    " knobs TEXT NOT NULL," /* {\"sysctl\", \"sysctl_remote\"} */
    " PRIMARY KEY(run, side)) WITHOUT ROWID;"
    "CREATE TABLE sample("
    " id INTEGER PRIMARY KEY,"
    " run INTEGER NOT NULL, side INTEGER NOT NULL,"
    " round INTEGER NOT NULL,"
    " at REAL NOT NULL,"
    " value REAL,"        /* of the side's metric; NULL: it has none */
    " doc TEXT NOT NULL," /* bench's */
    " UNIQUE(run, side, round),"
    " FOREIGN KEY(run, side) REFERENCES side(run, side) ON DELETE CASCADE);",
};

/* ---- where ---- */

static bool state_dir(char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;
    if (state != NULL && state[0] == '/') { /* its specification: a relative one is ignored */
        n = snprintf(out, size, "%s/weir", state);
        return n < (int)size;
    }
    if (home == NULL || home[0] != '/') {
        const struct passwd *p = getpwuid(getuid());
        home = p != NULL ? p->pw_dir : NULL;
    }
    if (home == NULL || home[0] != '/')
        return false;
    n = snprintf(out, size, "%s/.local/state/weir", home);
    return n < (int)size;
}

enum store_status store_path(struct store *s)
{
    static const char file[] = "/results.db";
    const char *asked = getenv(STORE_ENV);
    s->error[0] = '\0';
    if (asked != NULL && strcmp(asked, "off") == 0)
        return STORE_OFF;
    if (asked != NULL && asked[0] != '\0') {
        if (snprintf(s->path, sizeof(s->path), "%s", asked) < (int)sizeof(s->path))
            return STORE_OK;
        snprintf(s->error, sizeof(s->error), STORE_ENV ": the path is too long");
        return STORE_FAILED;
    }
    if (!state_dir(s->path, sizeof(s->path) - sizeof(file))) {
        snprintf(s->error, sizeof(s->error),
                 "no home directory for the results store: set " STORE_ENV " to a path, or to off");
        return STORE_FAILED;
    }
    strcat(s->path, file);
    return STORE_OK;
}

/* The directories above the file, for the user alone. */
static bool make_dirs(struct store *s)
{
    for (char *p = strchr(s->path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(s->path, 0700) != 0 && access(s->path, F_OK) != 0) {
            snprintf(s->error, sizeof(s->error), "results store: cannot make %s: %s", s->path,
                     strerror(errno));
            return false;
        }
        *p = '/';
    }
    return true;
}

/* ---- errors ---- */

bool store_error(struct store *s, const char *what)
{
    int code = s->db != NULL ? sqlite3_errcode(s->db) : SQLITE_NOMEM;
    int system = s->db != NULL ? sqlite3_system_errno(s->db) : 0;
    const char *why = s->db != NULL ? sqlite3_errmsg(s->db) : "out of memory";
    const char *advice = "";
    switch (code) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        advice = ": the file is damaged, or no database; move it away to begin anew";
        break;
    case SQLITE_FULL:
        why = "no space left";
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        why = "another process keeps it locked";
        break;
    case SQLITE_READONLY:
        why = "it may not be written to";
        break;
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        if (system != 0)
            why = strerror(system);
        break;
    default:
        break;
    }
    snprintf(s->error, sizeof(s->error), "results store %s: %s: %s%s", s->path, what, why, advice);
    return false;
}

sqlite3_stmt *store_prepare(struct store *s, const char *sql)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK)
        return st;
    store_error(s, "cannot read");
    return NULL;
}

bool store_exec(struct store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ||
           store_error(s, "cannot write");
}

/* ---- open ---- */

static bool get_number(struct store *s, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = store_prepare(s, sql);
    if (st == NULL)
        return false;
    bool good = sqlite3_step(st) == SQLITE_ROW;
    if (good)
        *out = sqlite3_column_int64(st, 0);
    else
        store_error(s, "cannot read");
    sqlite3_finalize(st);
    return good;
}

/* Is it ours, and of which schema? 0: empty. */
static bool get_schema(struct store *s, int64_t *version)
{
    int64_t id, tables;
    if (!get_number(s, "PRAGMA user_version", version) ||
        !get_number(s, "PRAGMA application_id", &id) ||
        !get_number(s, "SELECT count(*) FROM sqlite_master", &tables))
        return false;
    if (id != APPLICATION_ID && (tables > 0 || *version != 0)) {
        snprintf(s->error, sizeof(s->error),
                 "%s is a database of something else, not a results store", s->path);
        return false;
    }
    if (*version > STORE_SCHEMA) {
        snprintf(s->error, sizeof(s->error),
                 "results store %s was written by a newer Weir (schema %lld; this one knows %d): "
                 "use that one, or another store (" STORE_ENV ")",
                 s->path, (long long)*version, STORE_SCHEMA);
        return false;
    }
    return true;
}

/* Many may do this at once: whoever holds the write lock looks again. */
static bool migrate(struct store *s)
{
    char sql[128];
    int64_t version;
    if (!store_exec(s, "BEGIN IMMEDIATE"))
        return false;
    bool good = get_schema(s, &version);
    for (; good && version < STORE_SCHEMA; version++)
        good = store_exec(s, step[version]);
    snprintf(sql, sizeof(sql), "PRAGMA application_id=%d; PRAGMA user_version=%d", APPLICATION_ID,
             STORE_SCHEMA);
    good = good && store_exec(s, sql) && store_exec(s, "COMMIT");
    if (!good)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return good;
}

/* The mode is kept in the file. A file system without shared memory refuses it: the old journal
 * does as well, readers only wait more. */
static bool use_wal(struct store *s)
{
    for (unsigned i = 0; i < WAL_TRIES; i++) {
        int e = sqlite3_exec(s->db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL);
        if (e == SQLITE_OK)
            return true;
        if (e != SQLITE_BUSY && e != SQLITE_LOCKED)
            break;
        usleep(WAL_PAUSE_US);
    }
    return store_error(s, "cannot write");
}

static enum store_status fail(struct store *s)
{
    store_close(s);
    return STORE_FAILED;
}

static bool open_file(struct store *s, int flags, bool immutable)
{
    char *uri = NULL;
    const char *name = s->path;
    if (immutable) {
        /* In a URI these characters mean something else. */
        sqlite3_str *u = sqlite3_str_new(NULL);
        sqlite3_str_appendall(u, "file:");
        for (const char *p = s->path; *p != '\0'; p++)
            sqlite3_str_appendf(u, strchr("%?#", *p) != NULL ? "%%%02X" : "%c", (unsigned char)*p);
        sqlite3_str_appendall(u, "?immutable=1");
        name = uri = sqlite3_str_finish(u);
        flags |= SQLITE_OPEN_URI;
    }
    bool good = name != NULL && sqlite3_open_v2(name, &s->db, flags, NULL) == SQLITE_OK;
    if (!good)
        store_error(s, "cannot open");
    sqlite3_free(uri);
    if (!good)
        return false;
    sqlite3_extended_result_codes(s->db, 0);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    return true;
}

static enum store_status open_write(struct store *s)
{
    int64_t version;
    if (!make_dirs(s))
        return STORE_FAILED;
    /* SQLite gives its other files the mode of this one. */
    int fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(s->error, sizeof(s->error), "results store: cannot write %s: %s", s->path,
                 strerror(errno));
        return STORE_FAILED;
    }
    close(fd);
    /* A limit on the size of files is an error like a full disk, not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
    if (!open_file(s, SQLITE_OPEN_READWRITE, false) || !get_schema(s, &version) ||
        (version == 0 && !store_exec(s, "PRAGMA auto_vacuum=INCREMENTAL")) || !use_wal(s) ||
        !store_exec(s, "PRAGMA foreign_keys=ON; PRAGMA synchronous=FULL") ||
        (version < STORE_SCHEMA && !migrate(s)))
        return fail(s);
    return STORE_OK;
}

/* Where nothing can be written beside it, readers have no place for what they share with writers;
 * then there are no writers, unless a journal is left. */
static bool read_only_place(const struct store *s)
{
    char wal[sizeof(s->path) + 8];
    struct stat st;
    snprintf(wal, sizeof(wal), "%s-wal", s->path);
    return (stat(wal, &st) != 0 || st.st_size == 0) && access(s->path, R_OK) == 0;
}

static enum store_status open_read(struct store *s)
{
    int64_t version = 0;
    struct stat st;
    if (stat(s->path, &st) != 0) {
        if (errno == ENOENT)
            return STORE_ABSENT;
        snprintf(s->error, sizeof(s->error), "results store: cannot read %s: %s", s->path,
                 strerror(errno));
        return STORE_FAILED;
    }
    bool good = open_file(s, SQLITE_OPEN_READONLY, false) && get_schema(s, &version);
    int code = s->db != NULL ? sqlite3_errcode(s->db) : SQLITE_OK;
    if (!good && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY) && read_only_place(s)) {
        store_close(s);
        good = open_file(s, SQLITE_OPEN_READONLY, true) && get_schema(s, &version);
    }
    if (!good)
        return fail(s);
    if (version == 0) { /* made, and nothing in it yet */
        store_close(s);
        return STORE_ABSENT;
    }
    /* An older schema is brought up to date where it may be written. */
    if (version < STORE_SCHEMA) {
        store_close(s);
        return open_write(s);
    }
    return STORE_OK;
}

enum store_status store_open(struct store *s, enum store_mode mode)
{
    enum store_status e = store_path(s);
    s->db = NULL;
    if (e != STORE_OK)
        return e;
    return mode == STORE_WRITE ? open_write(s) : open_read(s);
}

void store_close(struct store *s)
{
    sqlite3_close(s->db);
    s->db = NULL;
}
