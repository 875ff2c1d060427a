/* The queue in limit.c, and what measure.c sees of it. */
#include <stddef.h>

#include "sqlite3-binding.h"

/* What is measured: the flags of package workload. */
extern struct spec {
	const char *kind, *keys, *dir, *deliveries;
	int full, batch, size, rows, samples;
	double seconds;
} spec;

/* What the last claim returned: handles, and copies of everything else. */
extern struct claimed {
	sqlite3_int64 *ids, *fences;
	char *copies;
	size_t used, room;
	int rows;
} claimed;

extern sqlite3 *db;
extern char path[4096]; /* of db */

void fail(const char *format, ...);
void check(int code, int want, const char *what);
void *allocate(void *old, size_t size);

void read_payloads(void);
void open_database(void);
void close_database(void);
void run(const char *statement);

void append(int n, int delay, int alone);
void fill(int rows, int delay);
int claim_rows(int limit);
void complete_rows(void);
void expect_live(int want);
