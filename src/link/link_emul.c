/* SPDX-License-Identifier: BSD-2-Clause
 * The emulator: delay, rate, queue, loss and the other ills of a path, around any link.
 *
 * A pipe is one FIFO: its delay is constant, so frames leave in the order in which they pass the
 * bottleneck, and reordering happens before it. m_pkt.time_ns holds the moment at which a frame is
 * due at the far end. */
#include "link_emul.h"

#include "link_frame.h"
#include "wire/checksum.h"
#include "wire/wire.h"

#include <netinet/in.h>

#define EMUL_WIRE_OVERHEAD 24 /* preamble, FCS and gap of a frame, for the rate */
#define EMUL_HOLD_NS                                                                               \
    (50 * NS_PER_US) /* a held frame goes after so long without the places being passed */
#define EMUL_HOLD_PLACE_NS NS_PER_US    /* and so much a place */
#define EMUL_RETRY_NS (100 * NS_PER_US) /* the wrapped link was full */
#define EMUL_PULL 64                    /* frames taken from the wrapped link at a time */
#define EMUL_PULL_MAX 16                /* and times a call */

struct held {
    struct mbuf *m;
    uint64_t pass_at;     /* when so many frames have passed in all */
    uint64_t deadline_ns; /* or now */
};

struct pipe {
    struct emul *emul;
    bool active;
    struct rng rng;
    struct mbuf *head, **tail;           /* due later, by m_nextpkt */
    struct mbuf *waiting;                /* first frame still before the bottleneck; NULL: none */
    uint32_t count;                      /* frames in the FIFO */
    uint32_t queue_packets, queue_bytes; /* before the bottleneck */
    uint64_t free_ns;                    /* when the bottleneck has sent all */
    uint64_t passed;                     /* frames that went on to the bottleneck */
    struct held held[LINK_EMUL_HOLD_MAX];
    uint32_t held_first, held_count;
};

struct emul {
    struct weir_stack *stack;
    struct link_end inner;
    struct link_emul_config cfg;
    bool bare, complete; /* complete: the wrapped link wants its checksums done */
    struct pipe tx, rx;
    uint64_t retry_ns;
    uint64_t gate_ns; /* coalescing: frames wait until then; 0: no frame waits */
};

bool link_emul_wanted(const struct link_emul_config *c)
{
    return c->delay_ns || c->rate_bps || c->loss || c->dup || c->corrupt || c->ecn || c->reorder ||
           c->coalesce_ns;
}

static bool ills_wanted(const struct link_emul_config *c)
{
    struct link_emul_config ills = *c;

    ills.coalesce_ns = 0;
    return link_emul_wanted(&ills);
}

static bool luck(struct pipe *p, uint64_t share)
{
    return share && rng_u32(&p->rng) < share;
}

static uint64_t wire_ns(const struct emul *e, uint32_t len)
{
    return (len + EMUL_WIRE_OVERHEAD) * 8 * NS_PER_S / e->cfg.rate_bps;
}

/* --- the stages, last one first --- */

/* Mark an ECN-capable packet CE (RFC 3168 5). Others are left as they are. Consumes nothing; *m may
 * change, and is NULL when there was no memory. */
static void mark_ce(struct emul *e, struct mbuf **mp)
{
    uint32_t l3 = e->bare ? 0 : LINK_ETHER_HEADER, need = l3 + 20;
    struct mbuf *m = *mp;

    if (m->m_pkt.len < need)
        return;
    if (m->m_len < need || !mbuf_is_writable(m)) {
        m = *mp = mbuf_pullup(m, need);
        if (!m) {
            COUNT(e->stack, link_emul_nomem);
            return;
        }
    }
    uint8_t *ip = m->m_data + l3;
    uint16_t type = e->bare ? 0 : get_be16(m->m_data + 12);
    if (ip[0] >> 4 == 4 && (e->bare || type == 0x0800)) {
        uint8_t ecn = ip[1] & 3;
        if (ecn == 0 || ecn == 3)
            return;
        uint16_t before, sum;
        memcpy(&before, ip, 2);
        ip[1] |= 3;
        uint16_t after;
        memcpy(&after, ip, 2);
        memcpy(&sum, ip + 10, 2);
        /* RFC 1624: HC' = ~(~HC + ~m + m') */
        sum = (uint16_t)~checksum_fold((uint64_t)(uint16_t)~sum + (uint16_t)~before + after);
        memcpy(ip + 10, &sum, 2);
    } else if (ip[0] >> 4 == 6 && (e->bare || type == 0x86dd)) {
        uint8_t ecn = ip[1] >> 4 & 3;
        if (ecn == 0 || ecn == 3)
            return;
        ip[1] |= 0x30;
    } else {
        return;
    }
    COUNT(e->stack, link_emul_marked);
}

/* Frames that the bottleneck has sent by now no longer wait. */
static void bottleneck_advance(struct pipe *p, uint64_t now_ns)
{
    while (p->waiting && p->waiting->m_pkt.time_ns - p->emul->cfg.delay_ns <= now_ns) {
        p->queue_packets--;
        p->queue_bytes -= p->waiting->m_pkt.len;
        p->waiting = p->waiting->m_nextpkt;
    }
}

static bool queue_is_full(const struct pipe *p, uint32_t len)
{
    const struct link_emul_config *c = &p->emul->cfg;
    uint32_t packets = c->queue_packets;

    if (packets == 0 && c->queue_bytes == 0)
        packets = LINK_EMUL_QUEUE_DEFAULT;
    return (packets && p->queue_packets >= packets) ||
           (c->queue_bytes && p->queue_bytes + len > c->queue_bytes);
}

/* Into the delay line. Consumes m. */
static void pipe_append(struct pipe *p, struct mbuf *m, uint64_t due_ns)
{
    if (p->count >= LINK_EMUL_LINE_MAX) {
        COUNT(p->emul->stack, link_emul_queue_drops);
        mbuf_free_chain(&m);
        return;
    }
    m->m_pkt.time_ns = due_ns;
    m->m_nextpkt = NULL;
    *p->tail = m;
    p->tail = &m->m_nextpkt;
    p->count++;
}

/* Through the bottleneck. Consumes m. */
static void pipe_pass(struct pipe *p, struct mbuf *m, uint64_t now_ns)
{
    struct emul *e = p->emul;

    p->passed++;
    if (e->cfg.rate_bps == 0) {
        pipe_append(p, m, now_ns + e->cfg.delay_ns);
        return;
    }
    bottleneck_advance(p, now_ns);
    if (queue_is_full(p, m->m_pkt.len) || p->count >= LINK_EMUL_LINE_MAX) {
        COUNT(e->stack, link_emul_queue_drops);
        mbuf_free_chain(&m);
        return;
    }
    if (e->cfg.ecn_packets && p->queue_packets >= e->cfg.ecn_packets) {
        mark_ce(e, &m);
        if (!m)
            return;
    }
    p->free_ns = MAX(p->free_ns, now_ns) + wire_ns(e, m->m_pkt.len);
    p->queue_packets++;
    p->queue_bytes += m->m_pkt.len;
    if (!p->waiting)
        p->waiting = m;
    pipe_append(p, m, p->free_ns + e->cfg.delay_ns);
}

/* Let held frames go whose places have been passed, or (by time) that nothing passed for long. */
static void release_held(struct pipe *p, uint64_t now_ns)
{
    while (p->held_count) {
        struct held *h = &p->held[p->held_first];
        if (h->pass_at > p->passed && h->deadline_ns > now_ns)
            return;
        struct mbuf *m = h->m;
        p->held_first = (p->held_first + 1) % LINK_EMUL_HOLD_MAX;
        p->held_count--;
        pipe_pass(p, m, now_ns);
    }
}

static uint64_t hold_ns(const struct emul *e)
{
    uint64_t place_ns = EMUL_HOLD_PLACE_NS;

    if (e->cfg.reorder_timed)
        return e->cfg.reorder_ns;
    if (e->cfg.rate_bps)
        place_ns = MAX(place_ns, wire_ns(e, e->inner.mtu));
    return EMUL_HOLD_NS + e->cfg.reorder_places * place_ns;
}

static void hold(struct pipe *p, struct mbuf *m, uint64_t now_ns)
{
    struct emul *e = p->emul;

    p->held[(p->held_first + p->held_count++) % LINK_EMUL_HOLD_MAX] = (struct held){
        .m = m,
        .pass_at = p->passed + e->cfg.reorder_places,
        .deadline_ns = now_ns + hold_ns(e),
    };
    COUNT(e->stack, link_emul_reordered);
}

/* Flip one bit behind the Ethernet header of a private copy. NULL: no memory (m is freed). */
static struct mbuf *corrupt(struct pipe *p, struct mbuf *m)
{
    struct emul *e = p->emul;
    uint32_t from = e->bare ? 0 : LINK_ETHER_HEADER;
    struct mbuf *copy = NULL;

    /* What nobody verifies could not be found corrupted: do the sum, and vouch for nothing any
     * more. */
    if (link_csum_complete(&m) == 0)
        copy = mbuf_dup_contiguous(e->stack->account, m);
    if (copy && copy->m_len > from) {
        uint32_t at = from + rng_below(&p->rng, copy->m_len - from);
        copy->m_data[at] ^= (uint8_t)(1u << rng_below(&p->rng, 8));
        copy->m_pkt = m->m_pkt;
        copy->m_pkt.csum_flags = 0;
        copy->m_flags |= M_PKTHDR;
        COUNT(e->stack, link_emul_corrupted);
    }
    if (!copy)
        COUNT(e->stack, link_emul_nomem);
    mbuf_free_chain(&m);
    return copy;
}

/* One wire segment from corruption on. Consumes m. */
static void pipe_one(struct pipe *p, struct mbuf *m, uint64_t now_ns)
{
    const struct link_emul_config *c = &p->emul->cfg;

    if (luck(p, c->corrupt))
        m = corrupt(p, m);
    if (m && luck(p, c->ecn))
        mark_ce(p->emul, &m);
    if (!m)
        return;
    if (luck(p, c->reorder) && p->held_count < LINK_EMUL_HOLD_MAX) {
        hold(p, m, now_ns);
        return;
    }
    pipe_pass(p, m, now_ns);
    release_held(p, now_ns);
}

static void pipe_segment(struct pipe *p, struct mbuf *m, uint64_t now_ns)
{
    struct emul *e = p->emul;
    struct mbuf *twin = NULL;

    if (luck(p, e->cfg.loss)) {
        COUNT(e->stack, link_emul_lost);
        mbuf_free_chain(&m);
        return;
    }
    if (luck(p, e->cfg.dup)) {
        twin = mbuf_dup_contiguous(e->stack->account, m);
        if (twin) {
            twin->m_pkt = m->m_pkt;
            twin->m_flags |= M_PKTHDR;
            COUNT(e->stack, link_emul_duplicated);
        } else {
            COUNT(e->stack, link_emul_nomem);
        }
    }
    pipe_one(p, m, now_ns);
    if (twin)
        pipe_one(p, twin, now_ns);
}

/* A frame enters. Consumes m. */
static void pipe_push(struct pipe *p, struct mbuf *m, uint64_t now_ns)
{
    struct emul *e = p->emul;
    struct mbuf *list;

    if (!p->active) { /* only coalescing */
        pipe_append(p, m, now_ns);
        return;
    }
    if (link_tso_cut(e->stack->account, &m, e->bare, &list) < 0)
        COUNT(e->stack, link_emul_nomem);
    while (list) {
        struct mbuf *one = list;
        list = one->m_nextpkt;
        one->m_nextpkt = NULL;
        pipe_segment(p, one, now_ns);
    }
}

/* The first frame if it is due (still in the pipe), else NULL. */
static struct mbuf *pipe_due(struct pipe *p, uint64_t now_ns)
{
    release_held(p, now_ns);
    bottleneck_advance(p, now_ns);
    return p->head && p->head->m_pkt.time_ns <= now_ns ? p->head : NULL;
}

/* Take the first frame out. */
static struct mbuf *pipe_take(struct pipe *p)
{
    struct mbuf *m = p->head;

    p->head = m->m_nextpkt;
    if (!p->head)
        p->tail = &p->head;
    m->m_nextpkt = NULL;
    p->count--;
    return m;
}

/* Undo pipe_take. */
static void pipe_put_back(struct pipe *p, struct mbuf *m)
{
    m->m_nextpkt = p->head;
    if (!p->head)
        p->tail = &m->m_nextpkt;
    p->head = m;
    p->count++;
}

static uint64_t pipe_deadline(const struct pipe *p)
{
    uint64_t t = p->head ? p->head->m_pkt.time_ns : TIME_NEVER;

    return p->held_count ? MIN(t, p->held[p->held_first].deadline_ns) : t;
}

static void pipe_init(struct pipe *p, struct emul *e, bool active, uint8_t which)
{
    uint8_t seed[RNG_SEED_BYTES] = {0};

    p->emul = e;
    p->active = active;
    p->tail = &p->head;
    memcpy(seed, &e->cfg.seed, sizeof(e->cfg.seed));
    seed[RNG_SEED_BYTES - 1] = which;
    rng_init(&p->rng, seed);
}

static void pipe_fini(struct pipe *p)
{
    while (p->head) {
        struct mbuf *m = pipe_take(p);
        mbuf_free_chain(&m);
    }
    for (; p->held_count; p->held_count--) {
        mbuf_free_chain(&p->held[p->held_first].m);
        p->held_first = (p->held_first + 1) % LINK_EMUL_HOLD_MAX;
    }
}

/* --- the link --- */

/* Hand what is due to the wrapped link. */
static void pump(struct emul *e, uint64_t now_ns)
{
    struct pipe *p = &e->tx;

    e->retry_ns = TIME_NEVER;
    while (pipe_due(p, now_ns)) {
        struct mbuf *m = pipe_take(p);
        if (e->complete && link_csum_complete(&m) < 0) {
            COUNT(e->stack, link_emul_nomem);
            continue;
        }
        if (e->inner.ops->tx(e->inner.link, &m, 1, now_ns) == 0) {
            pipe_put_back(p, m);
            e->retry_ns = now_ns + EMUL_RETRY_NS;
            return;
        }
    }
}

static size_t emul_tx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct emul *e = link;

    if (!e->tx.active)
        return e->inner.ops->tx(e->inner.link, frames, n, now_ns);
    for (size_t i = 0; i < n; i++) {
        pipe_push(&e->tx, frames[i], now_ns);
        frames[i] = NULL;
    }
    pump(e, now_ns);
    return n;
}

/* Everything that has come at the wrapped link enters the pipe: it must begin its delay now. */
static void pull(struct emul *e, uint64_t now_ns)
{
    struct mbuf *batch[EMUL_PULL];

    for (int i = 0; i < EMUL_PULL_MAX; i++) {
        size_t got = e->inner.ops->rx(e->inner.link, batch, EMUL_PULL, now_ns);
        for (size_t k = 0; k < got; k++)
            pipe_push(&e->rx, batch[k], now_ns);
        if (got < EMUL_PULL)
            return;
    }
}

/* Coalescing: true while frames must wait to be handed up with others. */
static bool gate_is_shut(struct emul *e, uint64_t now_ns)
{
    if (e->cfg.coalesce_ns == 0 || !pipe_due(&e->rx, now_ns))
        return false;
    if (e->gate_ns == 0)
        e->gate_ns = now_ns + e->cfg.coalesce_ns;
    return now_ns < e->gate_ns;
}

static size_t emul_rx(void *link, struct mbuf **frames, size_t n, uint64_t now_ns)
{
    struct emul *e = link;
    size_t got = 0;

    if (e->tx.active)
        pump(e, now_ns);
    if (!e->rx.active && e->cfg.coalesce_ns == 0)
        return e->inner.ops->rx(e->inner.link, frames, n, now_ns);
    pull(e, now_ns);
    if (gate_is_shut(e, now_ns))
        return 0;
    while (got < n && pipe_due(&e->rx, now_ns)) {
        frames[got] = pipe_take(&e->rx);
        frames[got++]->m_pkt.time_ns = now_ns;
    }
    if (!pipe_due(&e->rx, now_ns))
        e->gate_ns = 0;
    return got;
}

static uint64_t emul_next_deadline(void *link)
{
    struct emul *e = link;
    uint64_t t = link_end_next_deadline(&e->inner);
    uint64_t tx = pipe_deadline(&e->tx), rx = pipe_deadline(&e->rx);

    if (e->gate_ns)
        rx = MAX(rx, e->gate_ns);
    if (e->retry_ns != TIME_NEVER)
        tx = MAX(tx, e->retry_ns);
    return MIN(t, MIN(tx, rx));
}

static void emul_kick(void *link)
{
    struct emul *e = link;

    e->inner.ops->kick(e->inner.link);
}

static int emul_fd(void *link)
{
    struct emul *e = link;

    return link_end_fd(&e->inner);
}

static bool emul_pending(void *link)
{
    struct emul *e = link;

    return link_end_pending(&e->inner);
}

static void emul_close(void *link)
{
    struct emul *e = link;
    struct weir_alloc alloc = e->stack->alloc;

    link_end_close(&e->inner);
    pipe_fini(&e->tx);
    pipe_fini(&e->rx);
    alloc_free(&alloc, e, sizeof(*e));
}

static const struct netif_ops emul_ops = {
    .tx = emul_tx,
    .rx = emul_rx,
    .next_deadline = emul_next_deadline,
    .deadlines_are_exact = true,
    .fd = emul_fd,
    .pending = emul_pending,
    .close = emul_close,
};
static const struct netif_ops emul_kick_ops = {
    .tx = emul_tx,
    .rx = emul_rx,
    .next_deadline = emul_next_deadline,
    .deadlines_are_exact = true,
    .kick = emul_kick,
    .fd = emul_fd,
    .pending = emul_pending,
    .close = emul_close,
};

int link_emul_wrap(struct weir_stack *s, struct link_end *end, const struct link_emul_config *cfg,
                   enum link_emul_direction dirs)
{
    bool ills = ills_wanted(cfg);
    struct emul *e;

    CHECK(!(ills && dirs & LINK_EMUL_TX && end->ops->kick));
    CHECK(!cfg->reorder || (cfg->reorder_places > 0 && cfg->reorder_places <= LINK_EMUL_HOLD_MAX));
    e = alloc_zero(&s->alloc, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->stack = s;
    e->inner = *end;
    e->cfg = *cfg;
    e->bare = end->caps & NETIF_CAP_L3;
    e->complete = !(end->caps & NETIF_CAP_CSUM_TX);
    e->retry_ns = TIME_NEVER;
    pipe_init(&e->tx, e, ills && dirs & LINK_EMUL_TX, 't');
    pipe_init(&e->rx, e, ills && dirs & LINK_EMUL_RX, 'r');
    end->ops = end->ops->kick ? &emul_kick_ops : &emul_ops;
    end->link = e;
    if (e->tx.active) /* it cuts and completes itself */
        end->caps |= NETIF_CAP_CSUM_TX | NETIF_CAP_TSO4 | NETIF_CAP_TSO6;
    return 0;
}
