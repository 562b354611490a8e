/* SPDX-License-Identifier: BSD-2-Clause
 * Taps: filtering and copying by the owner of a stack, a ring without a lock, its reader.
 *
 * How it works. The stack's hook for frames points to a table of taps. The ring's records lie in
 * one piece (a pad fills the end), so the reader needs no copy. head is written by the owner, tail
 * by the reader, each with release after what it covers; the owner reads tail anew only when what
 * it remembers of it leaves no room. */
#include "tap.h"

#include "base/stack.h"
#include "buf/mbuf.h"
#include "ip/netif.h"
#include "link/link_frame.h"

#include <stdlib.h>

#define ALIGN 16u

struct tap_iface {
    uint32_t index; /* of the interface; 0: free */
    bool wanted, told;
    _Atomic uint64_t seen, lost;
};

struct tap {
    struct weir_stack *stack;
    struct tap_config cfg;
    uint32_t reach[2]; /* how far into a frame each filter looks */
    struct tap_iface iface[TAP_IFACES];
    uint64_t tail_seen; /* the owner's memory of tail */
    CACHE_ALIGNED _Atomic uint64_t head;
    CACHE_ALIGNED _Atomic uint64_t tail;
    uint8_t *ring;
    uint8_t scratch[4096]; /* of a frame in pieces, for the filter */
};

struct tap_table {
    struct tap *tap[TAP_MAX];
    uint64_t order;
};

/* ---- filters ---- */

bool tap_filter_is_sound(const struct tap_filter *f)
{
    if (f->code == NULL)
        return true;
    if (f->count == 0 || f->count > TAP_FILTER_MAX || !bpf_validate(f->code, (int)f->count))
        return false;
    for (unsigned i = 0; i < f->count; i++) /* only forward: it ends */
        if (f->code[i].code == (BPF_JMP | BPF_JA) && f->code[i].k >= f->count - i)
            return false;
    return true;
}

/* The bytes of a frame that a filter can ask for. What is added to an index register is a header's
 * length; 1024 holds any. */
static uint32_t filter_reach(const struct tap_filter *f)
{
    uint32_t reach = 64;
    for (unsigned i = 0; f->code != NULL && i < f->count; i++) {
        unsigned class = BPF_CLASS(f->code[i].code), mode = BPF_MODE(f->code[i].code);
        if ((class != BPF_LD && class != BPF_LDX) ||
            f->code[i].k > sizeof(((struct tap *)0)->scratch))
            continue;
        if (mode == BPF_ABS || mode == BPF_IND || mode == BPF_MSH)
            reach = MAX(reach, f->code[i].k + 4 + (mode == BPF_IND ? 1024u : 0u));
    }
    return MIN(reach, (uint32_t)sizeof(((struct tap *)0)->scratch));
}

static bool passes(struct tap *t, bool bare, const struct mbuf *m)
{
    const struct tap_filter *f = &t->cfg.filter[bare];
    const uint8_t *p = m->m_data;
    uint32_t have = m->m_len;
    if (f->code == NULL)
        return !f->never;
    if (have < m->m_pkt.len && have < t->reach[bare]) {
        have = MIN(m->m_pkt.len, t->reach[bare]);
        mbuf_copy_out(m, 0, have, t->scratch);
        p = t->scratch;
    }
    return bpf_filter(f->code, p, m->m_pkt.len, have) != 0;
}

/* ---- the owner's side ---- */

/* Room for a record of `size` bytes in one piece; NULL: there is none. */
static struct tap_record *reserve(struct tap *t, uint32_t size)
{
    uint32_t ring = t->cfg.ring_bytes;
    uint64_t head = LOAD_RELAXED(&t->head);
    uint32_t at = (uint32_t)(head & (ring - 1)), pad = ring - at < size ? ring - at : 0;
    if (head + pad + size - t->tail_seen > ring) {
        t->tail_seen = atomic_load_explicit(&t->tail, memory_order_acquire);
        if (head + pad + size - t->tail_seen > ring)
            return NULL;
    }
    if (pad > 0) { /* never less than ALIGN, which holds size and kind */
        struct tap_record *r = (struct tap_record *)(void *)(t->ring + at);
        r->size = pad;
        r->kind = TAP_PAD;
        atomic_store_explicit(&t->head, head + pad, memory_order_release);
        at = 0;
    }
    struct tap_record *r = (struct tap_record *)(void *)(t->ring + at);
    r->size = size;
    return r;
}

static void commit(struct tap *t, const struct tap_record *r)
{
    atomic_store_explicit(&t->head, LOAD_RELAXED(&t->head) + r->size, memory_order_release);
}

static uint32_t record_size(uint32_t payload)
{
    return ((uint32_t)sizeof(struct tap_record) + payload + ALIGN - 1) & ~(ALIGN - 1);
}

/* The place of an interface in the table; beyond it the last place stands for all others, which are
 * not copied. */
static unsigned find_iface(struct tap *t, const struct netif *nif)
{
    for (unsigned i = 0; i < TAP_IFACES - 1; i++) {
        struct tap_iface *f = &t->iface[i];
        if (f->index == nif->index)
            return i;
        if (f->index == 0) {
            f->index = nif->index;
            f->wanted = t->cfg.interface == NULL || strcmp(t->cfg.interface, nif->name) == 0;
            return i;
        }
    }
    return TAP_IFACES - 1;
}

static bool tell_iface(struct tap *t, unsigned place, const struct netif *nif, uint8_t flags)
{
    uint32_t len = sizeof(nif->name);
    struct tap_record *r = reserve(t, record_size(len));
    if (r == NULL)
        return false;
    r->kind = TAP_IFACE;
    r->flags = flags & TAP_BARE;
    r->iface = (uint16_t)place;
    r->caplen = r->len = len;
    r->time_ns = nif->stack->now;
    r->order = 0;
    memcpy(r->data, nif->name, len);
    r->data[len - 1] = '\0';
    commit(t, r);
    t->iface[place].told = true;
    return true;
}

static void add(_Atomic uint64_t *v)
{
    STORE_RELAXED(v, LOAD_RELAXED(v) + 1);
}

static void record(struct tap *t, uint64_t order, const struct netif *nif, uint8_t flags,
                   const struct mbuf *m)
{
    unsigned place = find_iface(t, nif);
    struct tap_iface *f = &t->iface[place];
    bool last = place == TAP_IFACES - 1;
    if ((!f->wanted && !last) || !passes(t, flags & TAP_BARE, m))
        return;
    add(&f->seen);
    uint32_t len = m->m_pkt.len, keep = MIN(len, t->cfg.snaplen);
    struct tap_record *r = NULL;
    if (!last && (f->told || tell_iface(t, place, nif, flags)))
        r = reserve(t, record_size(keep));
    if (r == NULL) {
        add(&f->lost);
        return;
    }
    r->kind = TAP_FRAME;
    r->flags = flags;
    if (m->m_pkt.csum_flags & (CSUM_L4_PARTIAL | CSUM_L4_VALID) || m->m_pkt.tso_segsz)
        r->flags |= TAP_CHECKSUM;
    r->iface = (uint16_t)place;
    r->caplen = keep;
    r->len = len;
    r->time_ns = nif->stack->now;
    r->order = order;
    mbuf_copy_out(m, 0, keep, r->data);
    commit(t, r);
}

static void on_frames(void *ctx, struct netif *nif, enum hook_direction dir,
                      struct mbuf *const *frames, size_t n)
{
    struct tap_table *table = ctx;
    uint8_t flags = dir == HOOK_OUT ? TAP_OUT : 0;
    if (nif->caps & (NETIF_CAP_L3 | NETIF_CAP_LOOPBACK))
        flags |= TAP_BARE;
    for (size_t i = 0; i < n; i++) {
        table->order++;
        for (unsigned k = 0; k < TAP_MAX; k++)
            if (table->tap[k] != NULL)
                record(table->tap[k], table->order, nif, flags, frames[i]);
    }
}

/* ---- life ---- */

static struct tap *tap_new(const struct tap_config *cfg)
{
    struct tap *t =
        aligned_alloc(CACHE_LINE, (sizeof(*t) + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1));
    if (t == NULL)
        return NULL;
    memset(t, 0, sizeof(*t));
    t->cfg = *cfg;
    for (unsigned i = 0; i < 2; i++)
        t->reach[i] = filter_reach(&cfg->filter[i]);
    t->ring = aligned_alloc(CACHE_LINE, cfg->ring_bytes);
    if (t->ring != NULL)
        return t;
    free(t);
    return NULL;
}

struct tap *tap_attach(struct weir_stack *s, const struct tap_config *cfg, int *error)
{
    unsigned place = 0;
    CHECK(cfg->snaplen > 0 && cfg->snaplen <= TAP_FRAME_MAX && cfg->ring_bytes >= TAP_RING_MIN &&
          (cfg->ring_bytes & (cfg->ring_bytes - 1)) == 0);
    struct tap_table *table = s->hooks.frames_ctx;
    *error = -ENOMEM;
    if (table == NULL)
        table = calloc(1, sizeof(*table));
    if (table == NULL)
        return NULL;
    while (place < TAP_MAX && table->tap[place] != NULL)
        place++;
    if (place == TAP_MAX) {
        *error = -ENOSPC;
        return NULL;
    }
    struct tap *t = tap_new(cfg);
    if (t == NULL) {
        if (s->hooks.frames_ctx == NULL)
            free(table);
        return NULL;
    }
    t->stack = s;
    table->tap[place] = t;
    s->hooks.frames_ctx = table;
    s->hooks.frames = on_frames;
    *error = 0;
    return t;
}

struct weir_stack *tap_stack(const struct tap *t)
{
    return t->stack;
}

void tap_detach(struct tap *t)
{
    struct weir_stack *s = t->stack;
    struct tap_table *table = s->hooks.frames_ctx;
    bool others = false;
    for (unsigned i = 0; i < TAP_MAX; i++) {
        if (table->tap[i] == t)
            table->tap[i] = NULL;
        others |= table->tap[i] != NULL;
    }
    t->stack = NULL;
    if (others)
        return;
    s->hooks.frames = NULL;
    s->hooks.frames_ctx = NULL;
    free(table);
}

void tap_detach_all(struct weir_stack *s)
{
    for (unsigned i = 0; i < TAP_MAX && s->hooks.frames_ctx != NULL; i++) {
        struct tap_table *table = s->hooks.frames_ctx;
        if (table->tap[i] != NULL)
            tap_detach(table->tap[i]);
    }
}

void tap_free(struct tap *t)
{
    if (t == NULL)
        return;
    CHECK(t->stack == NULL);
    free(t->ring);
    free(t);
}

/* ---- the reader's side ---- */

struct tap_record *tap_peek(struct tap *t)
{
    while (true) {
        uint64_t tail = LOAD_RELAXED(&t->tail);
        if (tail == atomic_load_explicit(&t->head, memory_order_acquire))
            return NULL;
        struct tap_record *r =
            (struct tap_record *)(void *)(t->ring + (tail & (t->cfg.ring_bytes - 1)));
        if (r->kind != TAP_PAD)
            return r;
        tap_pop(t);
    }
}

void tap_pop(struct tap *t)
{
    uint64_t tail = LOAD_RELAXED(&t->tail);
    const struct tap_record *r =
        (const struct tap_record *)(const void *)(t->ring + (tail & (t->cfg.ring_bytes - 1)));
    atomic_store_explicit(&t->tail, tail + r->size, memory_order_release);
}

void tap_counts(const struct tap *t, unsigned iface, uint64_t *seen, uint64_t *lost)
{
    *seen = LOAD_RELAXED(&t->iface[iface].seen);
    *lost = LOAD_RELAXED(&t->iface[iface].lost);
}

void tap_finish_checksum(struct tap_record *r)
{
    struct link_frame f;
    if (!(r->flags & TAP_CHECKSUM) || r->caplen != r->len)
        return;
    link_frame_parse(r->data, r->caplen, r->len, r->flags & TAP_BARE, &f);
    if (f.proto != 0)
        link_frame_checksum(r->data, &f);
}
