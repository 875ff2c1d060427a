package hrana_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox/hrana"
	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
)

// fake is a server that answers as it is told, and otherwise as a good one does
// that has nothing but streams and transactions.
type fake struct {
	*httptest.Server

	mu       sync.Mutex
	next     int             // number of the next baton
	streams  map[string]bool // the batons in use; true: in a transaction
	requests []string        // the statements that came, joined by "; ", a request each
	tell     http.HandlerFunc
}

func startFake(t testing.TB, start func(*httptest.Server)) *fake {
	f := &fake{streams: map[string]bool{}}
	f.Server = httptest.NewUnstartedServer(f)
	f.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if start == nil {
		start = (*httptest.Server).Start
	}
	start(f.Server)
	t.Cleanup(f.Close)
	return f
}

// once makes the handler answer the next request, and always all of them.
func (f *fake) once(h http.HandlerFunc) {
	f.always(func(w http.ResponseWriter, r *http.Request) {
		f.always(nil)
		h(w, r)
	})
}

func (f *fake) always(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell = h
}

// seen returns what came since it was last asked.
func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.requests
	f.requests = nil
	return seen
}

func (f *fake) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams)
}

// forget makes the fake know no stream any more, as after a restart.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.streams)
}

type pipeline struct {
	Baton    *string
	Requests []struct {
		Type  string
		Stmt  struct{ SQL string }
		Batch struct {
			Steps []struct{ Stmt struct{ SQL string } }
		}
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	tell := f.tell
	f.mu.Unlock()
	if tell != nil {
		tell(w, r)
		return
	}
	f.good(w, r)
}

// good answers as a server does.
func (f *fake) good(w http.ResponseWriter, r *http.Request) {
	var p pipeline
	if json.NewDecoder(r.Body).Decode(&p) != nil || r.URL.Path != "/v3/pipeline" {
		http.Error(w, "Cannot deserialize client message from JSON", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	inTransaction := false
	if p.Baton != nil {
		var ok bool
		if inTransaction, ok = f.streams[*p.Baton]; !ok {
			http.Error(w, "Received an invalid baton", http.StatusBadRequest)
			return
		}
		delete(f.streams, *p.Baton)
	}
	var replies, statements []string
	execute := func(query string) string {
		statements = append(statements, query)
		switch {
		case strings.HasPrefix(query, "BEGIN"):
			inTransaction = true
		case query == "COMMIT", query == "ROLLBACK":
			inTransaction = false
		}
		return `{"cols":[{"name":"n"}],"rows":[[{"type":"integer","value":"1"}]],"affected_row_count":1,"last_insert_rowid":"1"}`
	}
	closed := false
	for _, request := range p.Requests {
		result := ""
		switch request.Type {
		case "execute":
			result = `,"result":` + execute(request.Stmt.SQL)
		case "batch":
			var results, errs []string
			for _, step := range request.Batch.Steps {
				results, errs = append(results, execute(step.Stmt.SQL)), append(errs, "null")
			}
			result = `,"result":{"step_results":[` + strings.Join(results, ",") + `],"step_errors":[` + strings.Join(errs, ",") + `]}`
		case "get_autocommit":
			result = `,"is_autocommit":` + strconv.FormatBool(!inTransaction)
		case "close":
			closed = true
			statements = append(statements, "close")
		}
		replies = append(replies, `{"type":"ok","response":{"type":"`+request.Type+`"`+result+`}}`)
	}
	f.requests = append(f.requests, strings.Join(statements, "; "))
	baton := "null"
	if !closed {
		f.next++
		f.streams["b"+strconv.Itoa(f.next)] = inTransaction
		baton = `"b` + strconv.Itoa(f.next) + `"`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"baton":%s,"base_url":null,"results":[%s]}`, baton, strings.Join(replies, ","))
}

func openFake(t testing.TB, f *fake, opts *hrana.Options) *sql.DB {
	t.Helper()
	c, err := hrana.NewConnector(f.URL, opts)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// answer returns a handler that reads the request and answers with this.
func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestWhatBecameOfARequestIsKnown(t *testing.T) {
	const anyJSON = "application/json"
	for _, test := range []struct {
		name    string
		tell    http.HandlerFunc
		code    string
		status  int
		nothing bool
	}{
		{"401", answer(401, "text/plain", "who?"), "REQUEST_REFUSED", 401, true},
		{"403 in JSON", answer(403, anyJSON, `{"error":"blocked","code":"BLOCKED"}`), "BLOCKED", 403, true},
		{"404", answer(404, "", ""), "REQUEST_REFUSED", 404, true},
		{"413", answer(413, "text/plain", "too long"), "REQUEST_REFUSED", 413, true},
		{"429", answer(429, "text/plain", "too many"), "REQUEST_REFUSED", 429, true},
		{"400 of no known kind", answer(400, "text/plain", "Invalid reference to step in a batch condition"), "SERVER_FAILED", 400, false},
		{"a baton used before", answer(400, "text/plain", "Received a baton that has already been used"), "STREAM_REUSED", 400, false},
		{"408", answer(408, "text/plain", "slow"), "SERVER_FAILED", 408, false},
		{"500", answer(500, anyJSON, `{"error":"oh"}`), "SERVER_FAILED", 500, false},
		{"500 with a wrong body", answer(500, anyJSON, `{"error":`), "SERVER_FAILED", 500, false},
		{"502 of a gateway", answer(502, "text/html", "<html>Bad Gateway</html>"), "SERVER_FAILED", 502, false},
		{"503", answer(503, "text/plain", "\xff\xfe"), "SERVER_FAILED", 503, false},
		{"504", answer(504, "", ""), "SERVER_FAILED", 504, false},
		{"204", answer(204, "", ""), "SERVER_FAILED", 204, false},
		{"HTML with 200", answer(200, "text/html", "<html>Log in</html>"), "ANSWER_INVALID", 0, false},
		{"nothing", answer(200, anyJSON, ""), "ANSWER_INVALID", 0, false},
		{"half of it", answer(200, anyJSON, `{"baton":"x","results":[`), "ANSWER_INVALID", 0, false},
		{"no results", answer(200, anyJSON, `{"baton":"x","results":[]}`), "ANSWER_INVALID", 0, false},
		{"one result too few", answer(200, anyJSON, `{"results":[{"type":"ok","response":{"type":"execute","result":{}}}]}`), "ANSWER_INVALID", 0, false},
		{"results of other requests", answer(200, anyJSON, `{"results":[{"type":"ok","response":{"type":"sequence"}},{"type":"ok","response":{"type":"get_autocommit","is_autocommit":true}}]}`), "ANSWER_INVALID", 0, false},
		{"no result in it", answer(200, anyJSON, `{"results":[{"type":"ok","response":{"type":"execute"}},{"type":"ok","response":{"type":"get_autocommit","is_autocommit":true}}]}`), "ANSWER_INVALID", 0, false},
		{"no autocommit", answer(200, anyJSON, `{"results":[{"type":"ok","response":{"type":"execute","result":{}}},{"type":"error","error":{"message":"oh","code":"OH"}}]}`), "OH", 0, false},
		{"too long", answer(200, anyJSON, `{"results":[`+strings.Repeat(" ", 10_000)), "ANSWER_TOO_LARGE", 0, false},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "[[[[[[[[[["); err != nil {
					return
				}
			}
		}, "ANSWER_TOO_LARGE", 0, false},
		{"cut before the answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "ANSWER_LOST", 0, false},
		{"cut within the answer", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"baton":`)
			panic(http.ErrAbortHandler)
		}, "ANSWER_LOST", 0, false},
		{"cut within a chunk", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"baton":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "ANSWER_LOST", 0, false},
		{"no HTTP", func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH\r\n")
				conn.Close()
			}
		}, "ANSWER_LOST", 0, false},
		{"307", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "REDIRECTED", 307, true},
		{"303", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) }, "SERVER_FAILED", 303, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := startFake(t, nil)
			db := openFake(t, f, &hrana.Options{MaxAnswer: 5000})
			require.NoError(t, db.Ping())
			var calls atomic.Int32
			f.always(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				test.tell(w, r)
			})
			_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
			f.always(nil)
			require.Equal(t, int32(1), calls.Load()) // nothing is sent twice
			var e *hrana.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, test.code, e.Code(), err)
			require.Equal(t, test.status, e.Status())
			require.Equal(t, test.nothing, e.NothingDone(), err)
			require.Equal(t, !test.nothing, e.Lost(), err)
			require.NotContains(t, err.Error(), f.URL)
			require.NotContains(t, err.Error(), "<html>")
			require.Less(t, len(err.Error()), 700)

			// The pool goes on, in a transaction too.
			require.NoError(t, db.Ping())
			tx, err := db.Begin()
			require.NoError(t, err)
			f.always(test.tell)
			_, err = tx.Exec("INSERT INTO t VALUES (1)")
			require.Error(t, err)
			f.always(nil)
			f.seen()
			_, err = tx.Exec("INSERT INTO t VALUES (1)")
			if test.nothing {
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
				require.Equal(t, []string{"INSERT INTO t VALUES (1)", "COMMIT"}, f.seen())
			} else {
				require.True(t, sqlbatch.NothingDone(err))
				err = tx.Commit()
				require.True(t, sqlbatch.NothingDone(err))
				require.Equal(t, test.code, sqlbatch.Code(err))
				require.Empty(t, f.seen())
			}
			require.NoError(t, db.Ping())
		})
	}
}

func TestACommitWithoutAnAnswerIsLost(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, nil)
	tx, err := db.Begin()
	require.NoError(t, err)
	f.once(func(w http.ResponseWriter, r *http.Request) {
		f.good(httptest.NewRecorder(), r) // done
		panic(http.ErrAbortHandler)
	})
	err = tx.Commit()
	require.True(t, sqlbatch.Lost(err))
	require.False(t, sqlbatch.NothingDone(err))
	require.Equal(t, []string{"BEGIN", "COMMIT"}, f.seen())
	require.NoError(t, db.Ping())
}

func TestAForgottenStreamIsReplacedOutsideATransaction(t *testing.T) {
	for _, gone := range []struct {
		code string
		tell http.HandlerFunc
	}{
		{"STREAM_UNKNOWN", answer(400, "text/plain", "Received an invalid baton")},
		{"STREAM_EXPIRED", answer(400, "application/json", `{"message":"The stream has expired due to inactivity","code":"STREAM_EXPIRED"}`)},
	} {
		f := startFake(t, nil)
		db := openFake(t, f, nil)
		db.SetMaxOpenConns(1)
		require.NoError(t, db.Ping())
		f.forget()
		f.once(gone.tell)
		_, err := db.Exec("INSERT")
		require.NoError(t, err)
		require.Equal(t, []string{"SELECT 1", "INSERT"}, f.seen())

		tx, err := db.Begin()
		require.NoError(t, err)
		f.forget()
		f.once(gone.tell)
		_, err = tx.Exec("INSERT")
		require.Equal(t, gone.code, sqlbatch.Code(err))
		require.True(t, sqlbatch.NothingDone(err))
		require.NotErrorIs(t, err, driver.ErrBadConn)
		_, err = tx.Exec("INSERT") // would be stored at once
		require.Equal(t, gone.code, sqlbatch.Code(err))
		require.NoError(t, tx.Rollback()) // it is
		_, err = db.Exec("INSERT")
		require.NoError(t, err)
		require.Equal(t, []string{"BEGIN", "INSERT"}, f.seen())
	}
}

func TestATransactionThatEndedIsNotGoneOnWith(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, nil)
	tx, err := db.Begin()
	require.NoError(t, err)
	timeout := `{"baton":"b1","results":[{"type":"error","error":{"message":"Transaction timed-out","code":"TRANSACTION_TIMEOUT"}},` +
		`{"type":"ok","response":{"type":"get_autocommit","is_autocommit":true}}]}`
	f.once(answer(200, "application/json", timeout))
	_, err = tx.Exec("INSERT")
	require.Equal(t, sqlbatch.CodeTransactionTimeout, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))
	_, err = tx.Exec("INSERT")
	require.Equal(t, sqlbatch.CodeNoTransaction, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))
	err = tx.Commit()
	require.Equal(t, sqlbatch.CodeNoTransaction, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))
	require.Equal(t, []string{"BEGIN"}, f.seen())

	tx, err = db.Begin()
	require.NoError(t, err)
	f.once(answer(200, "application/json", timeout))
	_, err = tx.Exec("INSERT")
	require.Error(t, err)
	require.NoError(t, tx.Rollback())
}

func TestAStreamThatTheServerEndsInsideATransaction(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, nil)
	tx, err := db.Begin()
	require.NoError(t, err)
	f.seen()
	f.once(answer(200, "application/json", `{"baton":null,"results":[{"type":"ok","response":{"type":"execute","result":{}}},`+
		`{"type":"ok","response":{"type":"get_autocommit","is_autocommit":false}}]}`))
	_, err = tx.Exec("INSERT")
	require.NoError(t, err)
	for range 2 {
		_, err = tx.Exec("INSERT")
		require.Equal(t, sqlbatch.CodeStreamUnknown, sqlbatch.Code(err))
		require.True(t, sqlbatch.NothingDone(err))
	}
	require.Equal(t, sqlbatch.CodeStreamUnknown, sqlbatch.Code(tx.Commit()))
	require.Empty(t, f.seen())
	require.NoError(t, db.Ping())
}

func TestAConnectionThatComesBackInsideATransactionIsClosed(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, nil)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, []string{"BEGIN IMMEDIATE", "close"}, f.seen())
	require.Zero(t, f.open())

	// A deferred query that nobody needed any more is dropped.
	db.SetMaxOpenConns(1)
	conn, err = db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(c any) error { c.(sqlbatch.Conn).Defer("BEGIN"); return nil }))
	require.NoError(t, conn.Close())
	require.NoError(t, db.Ping())
	require.Equal(t, []string{"SELECT 1"}, f.seen())

	require.NoError(t, db.Close())
	require.Equal(t, []string{"close"}, f.seen())
	require.Zero(t, f.open())
}

func TestAContextEndsARequest(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	f.once(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done() // the server learns of it
		close(gone)
	})
	_, err := db.ExecContext(ctx, "INSERT")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, sqlbatch.CodeContextDone, sqlbatch.Code(err))
	require.True(t, sqlbatch.Lost(err))
	<-gone

	// Within the answer.
	ctx, cancel = context.WithCancel(t.Context())
	f.once(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"baton":`)
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	_, err = db.ExecContext(ctx, "INSERT")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, sqlbatch.Lost(err))

	// Before it was sent.
	require.NoError(t, db.Ping())
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(c any) error {
		_, err := c.(driver.ExecerContext).ExecContext(ctx, "INSERT", nil)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, sqlbatch.NothingDone(err))
		return nil
	}))
	require.NoError(t, conn.PingContext(t.Context())) // the connection is as good as before
}

// half is a transport that takes half of a request's body, and fails.
type half struct{ http.RoundTripper }

func (h half) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.ReadFull(r.Body, make([]byte, r.ContentLength-1))
	r.Body.Close()
	return nil, errors.New("broken pipe")
}

func TestARequestThatWasNotSentWholeIsNotDone(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, &hrana.Options{Transport: half{}})
	_, err := db.Exec("INSERT")
	require.Equal(t, sqlbatch.CodeConnectionFailed, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))
}

func TestAServerThatIsDownDidNothing(t *testing.T) {
	f := startFake(t, nil)
	db := openFake(t, f, nil)
	f.Close()
	_, err := db.Exec("INSERT")
	require.Equal(t, sqlbatch.CodeConnectionFailed, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))

	db, err = sql.Open("hrana", "https://"+strings.TrimPrefix(f.URL, "http://"))
	require.NoError(t, err)
	defer db.Close()
	require.True(t, sqlbatch.NothingDone(db.Ping()))

	tls := startFake(t, (*httptest.Server).StartTLS) // whose certificate nobody trusts
	db, err = sql.Open("hrana", tls.URL)
	require.NoError(t, err)
	defer db.Close()
	require.True(t, sqlbatch.NothingDone(db.Ping()))
}

func TestHTTP2AndTLS(t *testing.T) {
	f := startFake(t, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	proto := make(chan string, 1)
	f.once(func(w http.ResponseWriter, r *http.Request) {
		proto <- r.Proto
		f.good(w, r)
	})
	db := openFake(t, f, &hrana.Options{Transport: f.Client().Transport})
	require.NoError(t, db.Ping())
	require.Equal(t, "HTTP/2.0", <-proto)
	f.once(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := db.Exec("INSERT")
	require.True(t, sqlbatch.Lost(err))
	require.NoError(t, db.Ping())
	ctx, cancel := context.WithCancel(t.Context())
	f.once(func(w http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	_, err = db.ExecContext(ctx, "INSERT")
	require.ErrorIs(t, err, context.Canceled)
}

func TestBaseURLIsFollowedWhereAllowed(t *testing.T) {
	first, second := startFake(t, nil), startFake(t, nil)
	send := func(f *fake, to string) { // the fake says it once, and goes on
		f.once(func(w http.ResponseWriter, r *http.Request) {
			recorder := httptest.NewRecorder()
			f.good(recorder, r)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Replace(recorder.Body.String(), `"base_url":null`, `"base_url":"`+to+`"`, 1))
		})
	}
	db := openFake(t, first, nil)
	db.SetMaxOpenConns(1)
	send(first, second.URL)
	require.NoError(t, db.Ping())
	require.NoError(t, db.Ping())
	require.Len(t, first.seen(), 2)
	require.Empty(t, second.seen()) // not even the token goes there
	require.NoError(t, db.Close())

	db = openFake(t, first, &hrana.Options{Origins: []string{second.URL}})
	db.SetMaxOpenConns(1)
	send(first, second.URL+"/")
	var moved atomic.Int32
	second.always(func(w http.ResponseWriter, r *http.Request) { // the same server at another address
		moved.Add(1)
		first.good(w, r)
	})
	require.NoError(t, db.Ping())
	require.Zero(t, moved.Load())
	require.NoError(t, db.Ping())
	require.NoError(t, db.Ping())
	require.NoError(t, db.Close())
	require.Equal(t, int32(3), moved.Load())
	require.Equal(t, []string{"close", "SELECT 1", "SELECT 1", "SELECT 1", "close"}, first.seen())
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := startFake(t, nil)
	f := startFake(t, nil)
	db := openFake(t, f, &hrana.Options{Token: "t0ken"})
	f.always(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusPermanentRedirect)
	})
	require.Equal(t, sqlbatch.CodeRedirected, sqlbatch.Code(db.Ping()))
	require.Empty(t, other.seen())
}

func TestNoGoroutineIsLeft(t *testing.T) {
	f := startFake(t, nil)
	c, err := hrana.NewConnector(f.URL, nil)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 10 {
				tx, err := db.Begin()
				if err == nil {
					_, _ = tx.Exec("INSERT")
					_ = tx.Commit()
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, db.Close())
	require.Zero(t, f.open())
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("net/http.(*persistConn)")) && !bytes.Contains(stacks, []byte("hrana.(*stream)"))
	}, 10*time.Second, 10*time.Millisecond)
}
