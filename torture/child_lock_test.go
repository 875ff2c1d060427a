package torture_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// holdLocksAtRandom begins a transaction, holds it for a random time up to the
// given, ends it, and pauses as long, until its input ends: another program
// that reads and writes the same file. It is given the file, the statements
// with which a transaction begins, the time, and a seed.
func holdLocksAtRandom(args []string, in *bufio.Scanner, out io.Writer) error {
	longest, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	db, err := sql.Open("libsql", "file:"+args[0])
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var stopped atomic.Bool
	go func() {
		for in.Scan() {
			continue
		}
		stopped.Store(true)
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	held := 0
	for !stopped.Load() {
		if hold(ctx, conn, args[1]) == nil {
			held++
			time.Sleep(time.Duration(random.Int64N(int64(longest))))
		}
		_, _ = conn.ExecContext(ctx, "ROLLBACK") // there may be none
		time.Sleep(time.Duration(random.Int64N(int64(longest))))
	}
	_, err = fmt.Fprintln(out, held)
	return err
}

// hold begins a transaction and reads in it.
func hold(ctx context.Context, conn *sql.Conn, begin string) error {
	if _, err := conn.ExecContext(ctx, begin); err != nil {
		return err
	}
	var n int
	return conn.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT 10)").Scan(&n)
}
