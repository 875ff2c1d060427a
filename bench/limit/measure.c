/* The measured loops, and the protocol of package workload. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "limit.h"

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void expect_claimed(int want)
{
	if (claimed.rows != want)
		fail("%d rows were claimed and should be %d", claimed.rows, want);
}

/* Times of calls. */
struct times {
	double *all, sum;
	int count, room;
};

static void add(struct times *times, double took)
{
	if (times->count == times->room) {
		times->room = 2 * times->room + 64;
		times->all = allocate(times->all, times->room * sizeof *times->all);
	}
	times->all[times->count++] = took;
	times->sum += took;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* at returns milliseconds. */
static double at(struct times *times, double share)
{
	qsort(times->all, times->count, sizeof *times->all, ascending);
	return 1000 * times->all[(int)(share * (times->count - 1))];
}

static void measure_append(void)
{
	struct times times = {0};
	int rows = 0;

	open_database();
	while (times.sum < spec.seconds) {
		double start = seconds();
		append(spec.batch, 0, 1);
		add(&times, seconds() - start);
		rows += spec.batch;
	}
	expect_live(rows);
	close_database();
	printf("{\"rows/s\": %f, \"p50 ms\": %f, \"p99 ms\": %f, \"worst ms\": %f}\n",
		rows / times.sum, at(&times, 0.5), at(&times, 0.99), at(&times, 1));
	free(times.all);
}

static void measure_claim(int delayed)
{
	struct times claims = {0}, completes = {0};

	for (int i = 0; i < spec.samples; i++) {
		if (delayed)
			append(1, 0, 1);
		double start = seconds();
		claim_rows(spec.batch);
		add(&claims, seconds() - start);
		expect_claimed(delayed ? 1 : spec.batch);
		start = seconds();
		complete_rows();
		add(&completes, seconds() - start);
		if (!delayed)
			fill(spec.batch, 0);
	}
	expect_live(spec.rows);
	printf("{\"claim ms\": %f, \"complete ms\": %f, \"completed/s\": %f}\n", at(&claims, 0.5), at(&completes, 0.5),
		spec.samples * (delayed ? 1 : spec.batch) / completes.sum);
	free(claims.all);
	free(completes.all);
}

static void measure_drain(void)
{
	open_database();
	fill(spec.rows, 0);
	double start = seconds();
	int done = 0;
	while (done < spec.rows && seconds() - start < spec.seconds) {
		done += claim_rows(spec.batch);
		complete_rows();
	}
	double took = seconds() - start;
	expect_live(spec.rows - done);
	close_database();
	printf("{\"rows/s\": %f}\n", done / took);
}

static void measure_life(void)
{
	double start, appends, claims = 0, completes = 0;
	struct stat wal;
	char name[4100];

	open_database();
	start = seconds();
	for (int n = 0; n < spec.rows; n += spec.batch)
		append(spec.batch, 0, 1);
	appends = seconds() - start;
	for (int n = 0; n < spec.rows; n += spec.batch) {
		start = seconds();
		claim_rows(spec.batch);
		claims += seconds() - start;
		expect_claimed(spec.batch);
		start = seconds();
		complete_rows();
		completes += seconds() - start;
	}
	/* What claims and completions write: nothing is copied back meanwhile. */
	for (int n = 0; n < spec.rows; n += spec.batch)
		append(spec.batch, 0, 1);
	run("PRAGMA wal_checkpoint(TRUNCATE)");
	run("PRAGMA wal_autocheckpoint = 0");
	for (int n = 0; n < spec.rows; n += spec.batch) {
		claim_rows(spec.batch);
		expect_claimed(spec.batch);
		complete_rows();
	}
	snprintf(name, sizeof name, "%s-wal", path);
	if (stat(name, &wal))
		fail("%s: %s", name, strerror(errno));
	expect_live(0);
	close_database();
	double micro = 1e6 / spec.rows;
	printf("{\"append µs\": %f, \"claim µs\": %f, \"complete µs\": %f, \"life µs\": %f, \"WAL bytes\": %f}\n",
		appends * micro, claims * micro, completes * micro, (appends + claims + completes) * micro,
		(double)wal.st_size / spec.rows);
}

static const char *argument(int argc, char **argv, const char *name)
{
	size_t length = strlen(name);

	for (int i = 1; i < argc; i++)
		if (argv[i][0] == '-' && !strncmp(argv[i] + 1, name, length) && argv[i][1 + length] == '=')
			return argv[i] + length + 2;
	return "";
}

int main(int argc, char **argv)
{
	char line[64];

	spec.kind = argument(argc, argv, "kind");
	spec.keys = argument(argc, argv, "keys");
	spec.dir = argument(argc, argv, "dir");
	spec.deliveries = argument(argc, argv, "deliveries");
	spec.full = !strcmp(argument(argc, argv, "full"), "true");
	spec.batch = atoi(argument(argc, argv, "batch"));
	spec.size = atoi(argument(argc, argv, "size"));
	spec.rows = atoi(argument(argc, argv, "rows"));
	spec.samples = atoi(argument(argc, argv, "samples"));
	spec.seconds = atof(argument(argc, argv, "ms")) / 1000;
	read_payloads();

	int claims = !strcmp(spec.kind, "claim"), delayed = !strcmp(spec.kind, "delayed");
	if (claims || delayed) {
		open_database();
		fill(spec.rows, delayed ? 24 * 60 * 60 : 0);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("\"ready\"\n");
	while (fgets(line, sizeof line, stdin)) {
		if (claims || delayed)
			measure_claim(delayed);
		else if (!strcmp(spec.kind, "append"))
			measure_append();
		else if (!strcmp(spec.kind, "drain"))
			measure_drain();
		else if (!strcmp(spec.kind, "life"))
			measure_life();
		else
			fail("there is no kind \"%s\" here", spec.kind);
	}
	if (claims || delayed)
		close_database();
	return 0;
}
