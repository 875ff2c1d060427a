/*
 * The limit: what SQLite itself can do on this machine with the same table. One
 * thread, prepared statements, no language between. It speaks the protocol of the
 * Go programs: a line when it is ready, a line of figures for each line it reads.
 *
 * Its statements come from the header that the runner makes of package plain.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "limit.h"
#include "statements.h"

struct spec spec;
sqlite3 *db;
char path[4096];
struct claimed claimed;

static sqlite3_stmt *begin, *commit, *insert, *claim, *complete, *live;
static int databases;

/* The payloads that rows take in turn. */
static char **payloads;
static int *sizes;
static int payload_count, next_payload;

void fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "limit: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

void check(int code, int want, const char *what)
{
	if (code != want)
		fail("%s: %s", what, sqlite3_errmsg(db));
}

void *allocate(void *old, size_t size)
{
	void *new = realloc(old, size);

	if (!new)
		fail("out of memory");
	return new;
}

static void instant(char text[64], int delay)
{
	struct timespec now;
	struct tm parts;
	char whole[32];

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += delay;
	gmtime_r(&now.tv_sec, &parts);
	strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text, 64, "%s.%09ldZ", whole, now.tv_nsec);
}

static uint64_t random_bits(void)
{
	static uint64_t state;

	if (!state)
		state = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	state += 0x9e3779b97f4a7c15;
	uint64_t z = state;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* uuid writes one of version 4, or 7 if it is timed. */
static void uuid(char text[37], int timed)
{
	static uint64_t count;
	uint64_t high = random_bits(), low = random_bits();

	if (timed) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		high = ((uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000) << 16 | (count++ & 0xfff);
	}
	snprintf(text, 37, "%08" PRIx64 "-%04" PRIx64 "-%c%03" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
		high >> 32, high >> 16 & 0xffff, timed ? '7' : '4', high & 0xfff,
		(low >> 48 & 0x3fff) | 0x8000, low & 0xffffffffffff);
}

static sqlite3_stmt *prepare(const char *text)
{
	sqlite3_stmt *statement;

	check(sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL), SQLITE_OK, text);
	return statement;
}

void run(const char *text)
{
	check(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK, text);
}

static void step(sqlite3_stmt *statement)
{
	check(sqlite3_step(statement), SQLITE_DONE, sqlite3_sql(statement));
	sqlite3_reset(statement);
}

void open_database(void)
{
	char dir[4000];

	snprintf(dir, sizeof dir, "%s/%d", spec.dir, ++databases);
	if (mkdir(dir, 0755) && errno != EEXIST)
		fail("%s: %s", dir, strerror(errno));
	snprintf(path, sizeof path, "%s/queue.db", dir);
	check(sqlite3_open(path, &db), SQLITE_OK, path);
	run("PRAGMA journal_mode = WAL");
	run(spec.full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
	run(TABLE);
	run(PENDING_INDEX);
	begin = prepare("BEGIN IMMEDIATE");
	commit = prepare("COMMIT");
	insert = prepare(INSERT);
	claim = prepare(CLAIM);
	complete = prepare(COMPLETE);
	live = prepare(LIVE);
	next_payload = 0;
}

void close_database(void)
{
	sqlite3_stmt *statements[] = {begin, commit, insert, claim, complete, live};

	for (int i = 0; i < 6; i++)
		sqlite3_finalize(statements[i]);
	check(sqlite3_close(db), SQLITE_OK, "close");
	unlink(path);
}

/* append stages n rows of a new workflow; alone in their transaction, or in the
 * caller's. A single statement is a transaction by itself. */
void append(int n, int delay, int alone)
{
	char workflow[37], key[64], created[64], visible[64];

	uuid(workflow, 0);
	instant(created, 0);
	instant(visible, delay);
	if (alone && n > 1)
		step(begin);
	for (int i = 0; i < n; i++) {
		if (!strcmp(spec.keys, "fan-out"))
			snprintf(key, sizeof key, "%s:%d", workflow, i);
		else
			uuid(key, !strcmp(spec.keys, "timed"));
		int payload = next_payload++ % payload_count;
		sqlite3_bind_text(insert, 1, key, -1, SQLITE_STATIC);
		sqlite3_bind_text(insert, 2, workflow, -1, SQLITE_STATIC);
		sqlite3_bind_int(insert, 3, i);
		sqlite3_bind_text(insert, 4, ACTIVITY_TYPE, -1, SQLITE_STATIC);
		sqlite3_bind_blob(insert, 5, payloads[payload], sizes[payload], SQLITE_STATIC);
		sqlite3_bind_text(insert, 6, delay ? visible : created, -1, SQLITE_STATIC);
		sqlite3_bind_text(insert, 7, ROUTE, -1, SQLITE_STATIC);
		sqlite3_bind_text(insert, 8, ROUTE, -1, SQLITE_STATIC);
		sqlite3_bind_text(insert, 9, CONTENT_TYPE, -1, SQLITE_STATIC);
		sqlite3_bind_text(insert, 10, created, -1, SQLITE_STATIC);
		step(insert);
	}
	if (alone && n > 1)
		step(commit);
}

void fill(int rows, int delay)
{
	for (int done = 0; done < rows;) {
		step(begin);
		for (int n = 0; n < 100 && done < rows; n++) {
			int batch = rows - done < 100 ? rows - done : 100;
			append(batch, delay, 0);
			done += batch;
		}
		step(commit);
	}
}

/* claim_rows keeps copies of the payloads, as a program would. */
int claim_rows(int limit)
{
	char now[64];
	int code;

	instant(now, 0);
	claimed.rows = 0;
	claimed.used = 0;
	claimed.ids = allocate(claimed.ids, limit * sizeof *claimed.ids);
	claimed.fences = allocate(claimed.fences, limit * sizeof *claimed.fences);
	sqlite3_bind_text(claim, 1, now, -1, SQLITE_STATIC);
	sqlite3_bind_int(claim, 2, limit);
	while ((code = sqlite3_step(claim)) == SQLITE_ROW) {
		claimed.ids[claimed.rows] = sqlite3_column_int64(claim, 0);
		claimed.fences[claimed.rows++] = sqlite3_column_int64(claim, 11);
		for (int column = 1; column < 13; column++) {
			const void *data = sqlite3_column_blob(claim, column);
			int size = sqlite3_column_bytes(claim, column);
			if (claimed.used + size > claimed.room) {
				claimed.room = 2 * (claimed.used + size);
				claimed.copies = allocate(claimed.copies, claimed.room);
			}
			memcpy(claimed.copies + claimed.used, data, size);
			claimed.used += size;
		}
	}
	check(code, SQLITE_DONE, "claim");
	sqlite3_reset(claim);
	return claimed.rows;
}

void complete_rows(void)
{
	char now[64];

	instant(now, 0);
	step(begin);
	for (int i = 0; i < claimed.rows; i++) {
		sqlite3_bind_text(complete, 1, now, -1, SQLITE_STATIC);
		sqlite3_bind_int64(complete, 2, claimed.ids[i]);
		sqlite3_bind_int64(complete, 3, claimed.fences[i]);
		step(complete);
		if (sqlite3_changes(db) != 1)
			fail("a claim was lost");
	}
	step(commit);
}

void expect_live(int want)
{
	check(sqlite3_step(live), SQLITE_ROW, "live");
	int got = sqlite3_column_int(live, 0);
	sqlite3_reset(live);
	if (got != want)
		fail("%d rows are live and should be %d", got, want);
}

static void add_payload(const char *data, int size)
{
	payloads = allocate(payloads, (payload_count + 1) * sizeof *payloads);
	sizes = allocate(sizes, (payload_count + 1) * sizeof *sizes);
	payloads[payload_count] = allocate(NULL, size);
	memcpy(payloads[payload_count], data, size);
	sizes[payload_count++] = size;
}

void read_payloads(void)
{
	if (!*spec.deliveries) {
		char *data = allocate(NULL, spec.size);
		memset(data, 'x', spec.size);
		add_payload(data, spec.size);
		free(data);
		return;
	}
	FILE *file = fopen(spec.deliveries, "r");
	char *line = NULL;
	size_t room = 0;
	ssize_t size;

	if (!file)
		fail("%s: %s", spec.deliveries, strerror(errno));
	while ((size = getline(&line, &room, file)) > 0)
		add_payload(line, line[size - 1] == '\n' ? size - 1 : size);
	free(line);
	fclose(file);
	if (!payload_count)
		fail("%s has no lines", spec.deliveries);
}
