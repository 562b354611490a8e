/* SPDX-License-Identifier: BSD-2-Clause
 * One record of the flow log (SIFTR), and the two forms in which it is kept: text as FreeBSD 14
 * writes it, and a compact binary form. Neither allocates, locks, or reads a clock. */
#ifndef WEIR_MEASURE_SIFTR_RECORD_H
#define WEIR_MEASURE_SIFTR_RECORD_H

#include "base/base.h"

#define SIFTR_VERSION "1.3.0"
#define SIFTR_FIELDS 27

enum siftr_direction { SIFTR_IN, SIFTR_OUT };

/* The state of a connection as one packet passed. Host byte order, except addresses. */
struct siftr_record {
    uint64_t time_ns;             /* wall clock; text keeps its microseconds */
    uint8_t laddr[16], faddr[16]; /* network order; IPv4 in the first four bytes, the rest zero */
    uint16_t lport, fport;
    uint8_t direction; /* enum siftr_direction */
    uint8_t family;    /* 4 or 6 */
    uint8_t snd_scale, rcv_scale;
    uint8_t state;    /* FreeBSD's numbers: enum tcp_state_id */
    uint8_t sack;     /* 0 or 1 */
    uint8_t flowtype; /* 2: TCP over IPv4, 4: TCP over IPv6 */
    uint8_t zero;
    uint32_t ssthresh, cwnd, flags2;
    uint32_t snd_wnd, rcv_wnd; /* bytes, scaled */
    uint32_t mss, srtt_us, flags, rto_us;
    uint32_t snd_limit, snd_fill, rcv_limit, rcv_fill; /* socket buffers, bytes */
    uint32_t inflight;                                 /* snd_max - snd_una */
    uint32_t reass_segs, flowid;
};

/* The first line of a log, and what its last one counts. */
struct siftr_header {
    uint64_t enable_ns;
    char version[16], sysname[32]; /* "": SIFTR_VERSION, Weir */
    uint32_t sysver;
    uint8_t ipmode; /* 4, or 6: both */
};
struct siftr_footer {
    uint64_t disable_ns;
    uint64_t packets[2]; /* by enum siftr_direction: all TCP packets seen */
    uint64_t skipped_malloc[2], skipped_tcpcb[2], skipped_inpcb[2];
};

/* ---- text (siftr_text.c) ---- */
#define SIFTR_TEXT_MAX 320   /* longest record, with its newline */
#define SIFTR_HEADER_MAX 256 /* longest header line */
#define SIFTR_FOOTER_MAX 640 /* longest footer up to "flow_list=" */
#define SIFTR_FLOW_MAX 96    /* longest "addr;port-addr;port," */

/* The numbers of a record from the congestion window's threshold on, in the order of the text. */
#define SIFTR_NUMBERS(X)                                                                           \
    X(ssthresh)                                                                                    \
    X(cwnd)                                                                                        \
    X(flags2)                                                                                      \
    X(snd_wnd)                                                                                     \
    X(rcv_wnd)                                                                                     \
    X(snd_scale)                                                                                   \
    X(rcv_scale)                                                                                   \
    X(state)                                                                                       \
    X(mss)                                                                                         \
    X(srtt_us)                                                                                     \
    X(sack)                                                                                        \
    X(flags)                                                                                       \
    X(rto_us) X(snd_limit) X(snd_fill) X(rcv_limit) X(rcv_fill) X(inflight) X(reass_segs) X(flowid)

/* Each writes without a terminating NUL and returns the length. buf has room for the _MAX. */
size_t siftr_text_record(char *buf, const struct siftr_record *r);
size_t siftr_text_header(char *buf, const struct siftr_header *h);
/* The footer line is this, siftr_text_flow for each flow, and a newline. */
size_t siftr_text_footer(char *buf, const struct siftr_footer *f);
size_t siftr_text_flow(char *buf, const struct siftr_record *r);
/* One address of a record as text (inet_ntop's form); buf of 40 bytes. */
size_t siftr_text_address(char *buf, uint8_t family, const uint8_t *addr);

enum siftr_line_kind { SIFTR_LINE_RECORD, SIFTR_LINE_HEADER, SIFTR_LINE_FOOTER };
struct siftr_line {
    enum siftr_line_kind kind;
    union {
        struct siftr_record record;
        struct siftr_header header;
        struct siftr_footer footer;
    };
};
/* A line without its newline, of any origin. 0, or -EINVAL with *why a sentence that says what is
 * wrong (static text). What a header or footer has beyond what is known here is passed over. */
int siftr_parse_line(const char *line, size_t len, struct siftr_line *out,
                     const char **why) NODISCARD;

/* ---- binary (siftr_bin.c): the format is described there ---- */
#define SIFTR_BIN_VERSION 1
#define SIFTR_BIN_PREAMBLE 16       /* bytes at the beginning of a file */
#define SIFTR_BIN_HEAD 16           /* bytes before each chunk's payload */
#define SIFTR_BIN_PAYLOAD_MAX 65536 /* of a chunk */
#define SIFTR_BIN_FLOWS 1024        /* flows of a chunk */
#define SIFTR_BIN_RECORD_MAX 192    /* one record, its flow's definition included */
#define SIFTR_BIN_HASH (2 * SIFTR_BIN_FLOWS)

/* What encoder and decoder both know of a chunk. */
struct siftr_bin_flows {
    struct siftr_record last[SIFTR_BIN_FLOWS]; /* latest record of each flow of the chunk */
    uint32_t count, recent;                    /* flows; the flow of the latest record */
    uint64_t time_ns;                          /* of the latest record */
};

/* Private to siftr_bin.c; large (about 200 KB): allocate it. */
struct siftr_encoder {
    struct siftr_bin_flows flows;
    uint16_t hash[SIFTR_BIN_HASH]; /* index + 1 into flows.last; 0: free */
    uint32_t records, used;        /* in the present chunk */
    bool done;                     /* `chunk` was given out: begin anew */
    uint8_t chunk[SIFTR_BIN_HEAD + SIFTR_BIN_PAYLOAD_MAX];
};

/* The bytes with which a file begins; they may stand again before any later chunk. */
void siftr_bin_preamble(uint8_t out[SIFTR_BIN_PREAMBLE]);
void siftr_encoder_init(struct siftr_encoder *e);
/* Add one record. Returns the length of the chunk that is complete now, at *out until the next
 * call, or 0: nothing is to be written yet. cost: some tens of ns. */
size_t siftr_encoder_add(struct siftr_encoder *e, const struct siftr_record *r,
                         const uint8_t **out) NODISCARD;
/* End the chunk, so that readers see all that was added. 0: nothing was. */
size_t siftr_encoder_flush(struct siftr_encoder *e, const uint8_t **out) NODISCARD;
/* A chunk that carries text: lines of the text form that are no records (header, footer), whole or
 * in pieces of at most SIFTR_BIN_PAYLOAD_MAX bytes. Flush before. Returns the length of the chunk
 * at *out. */
size_t siftr_encoder_text(struct siftr_encoder *e, const char *text, size_t len,
                          const uint8_t **out) NODISCARD;

/* The next piece of a file, of which buf holds what is there so far. */
enum siftr_piece_kind {
    SIFTR_PIECE_MORE, /* incomplete: read on (never with at_end; size is 0) */
    SIFTR_PIECE_PREAMBLE,
    SIFTR_PIECE_RECORDS, /* a chunk: give it to a decoder */
    SIFTR_PIECE_TEXT,    /* a chunk of text */
    SIFTR_PIECE_OTHER,   /* a chunk of a kind unknown here */
    SIFTR_PIECE_TORN,    /* records without an end: a decoder gives those that are whole */
    SIFTR_PIECE_LOST,    /* damaged: skip to where a chunk may begin */
    SIFTR_PIECE_FUTURE   /* the preamble of a version unknown here */
};
struct siftr_piece {
    enum siftr_piece_kind kind;
    size_t size;            /* bytes of buf that it takes */
    const uint8_t *payload; /* of a chunk, in buf */
    size_t payload_len;
    uint32_t records;
    unsigned version; /* of a preamble */
};
/* A buffer of SIFTR_BIN_HEAD + SIFTR_BIN_PAYLOAD_MAX bytes is never too small. at_end: nothing
 * follows what is in buf. */
void siftr_bin_scan(const uint8_t *buf, size_t len, bool at_end, struct siftr_piece *out);

/* Large, as the encoder is. */
struct siftr_decoder {
    struct siftr_bin_flows flows;
    const uint8_t *p, *end; /* of the payload */
    uint32_t left;          /* records */
};
/* Begin with a piece of records, whole or torn, which stays in place until its last record was
 * taken. */
void siftr_decoder_begin(struct siftr_decoder *d, const struct siftr_piece *piece);
/* 1: *out is the next record; 0: that was all; -EBADMSG: the chunk is not one of an encoder, or
 * torn: from p on nothing is whole. */
int siftr_decoder_next(struct siftr_decoder *d, struct siftr_record *out) NODISCARD;

enum siftr_form { SIFTR_FORM_UNKNOWN, SIFTR_FORM_EMPTY, SIFTR_FORM_TEXT, SIFTR_FORM_BINARY };
/* What a file is by its first bytes (16 are enough): never append one form to the other. */
enum siftr_form siftr_form_of(const void *head, size_t len);

#endif
