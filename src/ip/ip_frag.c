/* SPDX-License-Identifier: BSD-2-Clause
 * Reassembly of both families (RFC 791 3.2, RFC 8200 4.5, RFC 5722).
 *
 * A datagram in the making is a queue of its fragments, sorted by offset, found through a hash with
 * the stack's secret. All queues of a family are also on a list by age. Bounds: queues and
 * fragments of a family, fragments of a queue, and age; when a bound of the family is met the
 * oldest queue goes, since under a flood the newest are the likeliest to be completed. A fragment
 * that overlaps another (an exact repetition apart) or contradicts what is known of the length
 * condemns its whole datagram: honest senders make no such fragments. */
#include "ip_var.h"
#include "wire/icmp.h"

#define FRAG6_TTL_NS (60 * NS_PER_S) /* RFC 8200 4.5 */
#define FRAG_MAX_TOTAL 65535
#define TOTAL_UNKNOWN UINT32_MAX
#define ECN_MASK 0x03
#define ECN_CE 0x03

/* The pieces are mbufs chained by m_nextpkt; each keeps its offset where a packet in flight has its
 * flow hash. */
#define piece_off(m) ((m)->m_pkt.hash)

struct frag_queue {
    struct frag_queue *hash_next;
    TAILQ_ENTRY(frag_queue) age;
    struct ipaddr src, dst;
    uint32_t id, proto;
    uint32_t bucket;
    struct mbuf *pieces;
    uint32_t count, have; /* pieces, their bytes */
    uint32_t total;       /* bytes, when the last fragment is here */
    uint64_t expires_ns;
    struct ip_info first; /* of the fragment at offset 0 */
    uint32_t netif_index; /* that it came through */
    uint8_t next, ecn_ce;
    bool first_here;
};

static struct frag_table *table_of(struct weir_stack *s, uint8_t family)
{
    return family == AF_INET ? &s->ip->frag4 : &s->ip->frag6;
}

static void count_limit(struct weir_stack *s, uint8_t family, uint32_t n)
{
    if (family == AF_INET)
        COUNT_ADD(s, ip_frag_limit, n);
    else
        COUNT_ADD(s, ip6_frag_limit, n);
}

static void count_bad(struct weir_stack *s, uint8_t family)
{
    if (family == AF_INET)
        COUNT(s, ip_frag_bad);
    else
        COUNT(s, ip6_frag_bad);
}

static void count_overlap(struct weir_stack *s, uint8_t family)
{
    if (family == AF_INET)
        COUNT(s, ip_frag_overlap);
    else
        COUNT(s, ip6_frag_overlap);
}

/* Unlink q and free it; its pieces go to the caller. */
static struct mbuf *queue_release(struct frag_table *t, struct frag_queue *q)
{
    struct frag_queue **p = &t->bucket[q->bucket];
    struct mbuf *pieces = q->pieces;

    while (*p != q)
        p = &(*p)->hash_next;
    *p = q->hash_next;
    TAILQ_REMOVE(&t->age, q, age);
    t->queues--;
    t->frags -= q->count;
    alloc_free(&t->stack->alloc, q, sizeof(*q));
    return pieces;
}

static void queue_drop(struct frag_table *t, struct frag_queue *q)
{
    struct mbuf *m = queue_release(t, q), *next;

    for (; m != NULL; m = next) {
        next = m->m_nextpkt;
        m->m_nextpkt = NULL;
        mbuf_free_chain(&m);
    }
}

/* The oldest queue has its time: tell the sender, if the start of the datagram is here to be
 * quoted. */
static void queue_expire(struct weir_stack *s, struct frag_table *t, struct frag_queue *q)
{
    bool v4 = q->src.family == AF_INET;

    if (v4)
        COUNT(s, ip_frag_timeout);
    else
        COUNT(s, ip6_frag_timeout);
    q->first.netif = netif_find(s, q->netif_index);
    if (q->first_here && q->first.netif != NULL) {
        if (v4)
            icmp4_send_quote(s, q->pieces, &q->first, ICMP4_TIME_EXCEEDED, 1);
        else
            icmp6_send_quote(s, q->pieces, &q->first, ICMP6_TIME_EXCEEDED, 1, 0);
    }
    queue_drop(t, q);
}

static void timer_rearm(struct frag_table *t)
{
    struct frag_queue *q = TAILQ_FIRST(&t->age);

    if (q == NULL)
        wheel_cancel(&t->stack->wheel, &t->timer);
    else if (!timer_is_armed(&t->timer))
        wheel_arm(&t->stack->wheel, &t->timer, q->expires_ns);
}

static void frag_timeout(struct timer *timer, uint64_t now_ns)
{
    struct frag_table *t = CONTAINER_OF(timer, struct frag_table, timer);
    struct frag_queue *q;

    while ((q = TAILQ_FIRST(&t->age)) != NULL && q->expires_ns <= now_ns)
        queue_expire(t->stack, t, q);
    timer_rearm(t);
}

static void table_init(struct weir_stack *s, struct frag_table *t)
{
    TAILQ_INIT(&t->age);
    timer_init(&t->timer, frag_timeout);
    t->stack = s;
}

void frag_init(struct weir_stack *s)
{
    table_init(s, &s->ip->frag4);
    table_init(s, &s->ip->frag6);
}

static void table_fini(struct frag_table *t)
{
    while (!TAILQ_EMPTY(&t->age))
        queue_drop(t, TAILQ_FIRST(&t->age));
    timer_rearm(t);
}

void frag_fini(struct weir_stack *s)
{
    table_fini(&s->ip->frag4);
    table_fini(&s->ip->frag6);
}

static uint32_t bucket_of(const struct weir_stack *s, const struct frag_piece *p)
{
    struct {
        struct ipaddr src, dst;
        uint32_t id, proto;
    } key = {.src = p->info.src, .dst = p->info.dst, .id = p->id, .proto = p->info.proto};

    return (uint32_t)siphash(s->secret, &key, sizeof(key)) % FRAG_BUCKETS;
}

static struct frag_queue *queue_find(struct frag_table *t, const struct frag_piece *p,
                                     uint32_t bucket)
{
    struct frag_queue *q;

    for (q = t->bucket[bucket]; q != NULL; q = q->hash_next) {
        if (q->id == p->id && q->proto == p->info.proto && ipaddr_equal(&q->src, &p->info.src) &&
            ipaddr_equal(&q->dst, &p->info.dst))
            return q;
    }
    return NULL;
}

static struct frag_queue *queue_create(struct weir_stack *s, struct frag_table *t,
                                       const struct frag_piece *p, uint32_t bucket)
{
    struct frag_queue *q = alloc_zero(&s->alloc, sizeof(*q));

    if (q == NULL)
        return NULL;
    q->src = p->info.src;
    q->dst = p->info.dst;
    q->id = p->id;
    q->proto = p->info.proto;
    q->bucket = bucket;
    q->total = TOTAL_UNKNOWN;
    q->expires_ns =
        s->now +
        (p->info.src.family == AF_INET ? (uint64_t)KNOB(s, ip_fragttl) * NS_PER_S : FRAG6_TTL_NS);
    q->hash_next = t->bucket[bucket];
    t->bucket[bucket] = q;
    TAILQ_INSERT_TAIL(&t->age, q, age);
    t->queues++;
    return q;
}

/* Make room for one more fragment, and one more queue if need be, by dropping the oldest queues
 * (never `keep`). False: the limits allow nothing at all. */
static bool make_room(struct weir_stack *s, struct frag_table *t, uint8_t family,
                      const struct frag_queue *keep)
{
    uint32_t max_queues =
        (uint32_t)(family == AF_INET ? KNOB(s, ip_maxfragpackets) : KNOB(s, ip6_maxfragpackets));
    uint32_t max_frags =
        (uint32_t)(family == AF_INET ? KNOB(s, ip_maxfrags) : KNOB(s, ip6_maxfrags));
    struct frag_queue *q;

    if (max_queues == 0 || max_frags == 0)
        return false;
    while (t->frags >= max_frags || (keep == NULL && t->queues >= max_queues)) {
        q = TAILQ_FIRST(&t->age);
        if (q == keep)
            q = TAILQ_NEXT(q, age);
        if (q == NULL)
            return false;
        count_limit(s, family, q->count);
        queue_drop(t, q);
    }
    return true;
}

enum fit { FIT_OK, FIT_REPEATED, FIT_OVERLAP, FIT_BAD };

/* Where the piece goes: *link is what points to it. At most maxfragsperpacket steps; in-order
 * arrival costs these too, which the bound keeps small. */
static enum fit find_place(struct frag_queue *q, const struct frag_piece *p, uint32_t len,
                           struct mbuf ***link)
{
    uint32_t end = p->off + len;
    struct mbuf **l, *m;

    if (!p->more) {
        if (q->total != TOTAL_UNKNOWN && q->total != end)
            return FIT_BAD;
    } else if (q->total != TOTAL_UNKNOWN && end > q->total) {
        return FIT_BAD;
    }
    for (l = &q->pieces; (m = *l) != NULL; l = &m->m_nextpkt) {
        uint32_t m_end = piece_off(m) + m->m_pkt.len;

        if (m_end <= p->off)
            continue;
        if (piece_off(m) >= end)
            break;
        return piece_off(m) == p->off && m->m_pkt.len == len ? FIT_REPEATED : FIT_OVERLAP;
    }
    /* The last fragment must be the last. */
    if (!p->more && m != NULL)
        return FIT_BAD;
    *link = l;
    return FIT_OK;
}

static void queue_note(struct frag_queue *q, const struct frag_piece *p, uint32_t end)
{
    if (!p->more)
        q->total = end;
    if (p->off == 0) {
        q->first = p->info;
        q->netif_index = p->info.netif->index;
        q->next = p->next;
        q->first_here = true;
    }
    if ((p->info.tos & ECN_MASK) == ECN_CE)
        q->ecn_ce = ECN_CE;
}

/* All pieces are here: one chain out of them. Frees q. */
static struct mbuf *queue_join(struct frag_table *t, struct frag_queue *q, struct frag_piece *p)
{
    struct netif *netif = p->info.netif;
    uint32_t total = q->total;
    struct mbuf *head, *tail, *m;

    p->info = q->first;
    p->info.netif = netif;
    p->next = q->next;
    /* RFC 3168 5.3: a mark on any fragment is a mark on the datagram. */
    if ((p->info.tos & ECN_MASK) != 0)
        p->info.tos |= q->ecn_ce;
    head = queue_release(t, q);
    tail = mbuf_last(head);
    m = head->m_nextpkt;
    head->m_nextpkt = NULL;
    while (m != NULL) {
        struct mbuf *next = m->m_nextpkt;

        m->m_nextpkt = NULL;
        m->m_flags &= (uint16_t)~M_PKTHDR;
        tail->m_next = m;
        tail = mbuf_last(m);
        m = next;
    }
    head->m_pkt.len = total;
    head->m_pkt.hash = 0;
    head->m_pkt.segs = 1;
    /* What a link vouched for were the pieces. */
    head->m_pkt.csum_flags = 0;
    return head;
}

/* The checks that need no queue. */
static bool piece_is_possible(const struct frag_piece *p, uint32_t len)
{
    if (len == 0 || p->off + len > FRAG_MAX_TOTAL)
        return false;
    return !p->more || len % 8 == 0;
}

static bool is_complete(const struct frag_queue *q)
{
    return q->have == q->total && q->first_here;
}

/* Also when the header of the first fragment makes the whole too long (ping of death with options).
 */
static bool is_too_long(const struct frag_queue *q)
{
    return q->src.family == AF_INET && q->total + q->first.hlen > FRAG_MAX_TOTAL;
}

static void count_arrival(struct weir_stack *s, uint8_t family)
{
    if (family == AF_INET)
        COUNT(s, ip_frag_rx); /* IPv6 counts at its fragment header */
}

static void condemn(struct weir_stack *s, struct frag_table *t, struct frag_queue *q, enum fit why)
{
    if (why == FIT_OVERLAP)
        count_overlap(s, q->src.family);
    else
        count_bad(s, q->src.family);
    queue_drop(t, q);
}

/* Put the piece into q. Consumes *m. NULL unless complete. */
static struct mbuf *queue_add(struct weir_stack *s, struct frag_table *t, struct frag_queue *q,
                              struct mbuf **m, struct frag_piece *p)
{
    uint32_t len = (*m)->m_pkt.len;
    uint8_t family = p->info.src.family;
    struct mbuf **link = NULL;
    enum fit fit = find_place(q, p, len, &link);

    if (fit != FIT_OK) {
        if (fit != FIT_REPEATED)
            condemn(s, t, q, fit);
        mbuf_free_chain(m);
        return NULL;
    }
    if (q->count >= (uint32_t)KNOB(s, ip_maxfragsperpacket)) {
        count_limit(s, family, q->count + 1);
        queue_drop(t, q);
        mbuf_free_chain(m);
        return NULL;
    }
    piece_off(*m) = p->off;
    (*m)->m_nextpkt = *link;
    *link = *m;
    *m = NULL;
    q->count++;
    t->frags++;
    q->have += len;
    queue_note(q, p, p->off + len);
    if (!is_complete(q))
        return NULL;
    if (is_too_long(q)) {
        condemn(s, t, q, FIT_BAD);
        return NULL;
    }
    if (family == AF_INET)
        COUNT(s, ip_frag_reassembled);
    else
        COUNT(s, ip6_frag_reassembled);
    return queue_join(t, q, p);
}

struct mbuf *frag_input(struct weir_stack *s, struct mbuf **m, struct frag_piece *p)
{
    uint8_t family = p->info.src.family;
    struct frag_table *t = table_of(s, family);
    uint32_t bucket = bucket_of(s, p);
    struct frag_queue *q = queue_find(t, p, bucket);
    struct mbuf *whole = NULL;

    count_arrival(s, family);
    if (!piece_is_possible(p, (*m)->m_pkt.len)) {
        count_bad(s, family);
        if (q != NULL)
            queue_drop(t, q);
        goto out;
    }
    if (!make_room(s, t, family, q)) {
        count_limit(s, family, 1);
        goto out;
    }
    if (q == NULL)
        q = queue_create(s, t, p, bucket);
    if (q == NULL)
        count_limit(s, family, 1);
    else
        whole = queue_add(s, t, q, m, p);
out:
    mbuf_free_chain(m);
    timer_rearm(t);
    return whole;
}
