package hrana_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"example.com/outbox/hrana"
	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
)

func TestDataSourceNames(t *testing.T) {
	for name, want := range map[string]string{
		"http://127.0.0.1:8080":                   "hrana(http://127.0.0.1:8080)",
		"http://[::1]:8080/":                      "hrana(http://[::1]:8080)",
		"https://host?authToken=a.b-c_d":          "hrana(https://host)",
		"libsql://host?authToken=x&tls=1":         "hrana(https://host)",
		"libsql://host:8080?tls=0":                "hrana(http://host:8080)",
		"http://host/dev/tenant?txlock=immediate": "hrana(http://host/dev/tenant)",
	} {
		c, err := hrana.NewConnector(name, nil)
		require.NoError(t, err, name)
		require.Equal(t, want, c.String())
	}
	for _, name := range []string{
		"", "host", "host:8080", "file:outbox.db", ":memory:", "ws://host", "http://", "http:host", "http://host#x",
		"http://host?tls=1", "https://host?tls=0", "libsql://host?tls=2", "http://host?x=1", "http://host?txlock=1",
		"http://host?authToken=a&authToken=b", "http://user@host",
	} {
		_, err := hrana.NewConnector(name, nil)
		require.Equal(t, sqlbatch.CodeArgsInvalid, sqlbatch.Code(err), name)
		require.True(t, sqlbatch.NothingDone(err))
		_, err = sql.Open("hrana", name)
		require.Error(t, err)
	}
	for _, origin := range []string{"", "host", "ws://host", "https://host/path", "https://u@host", "https://host?x=1"} {
		_, err := hrana.NewConnector("http://host", &hrana.Options{Origins: []string{origin}})
		require.Error(t, err, origin)
	}
}

// telltale is a transport whose errors tell what is in the request.
type telltale struct{}

func (telltale) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return nil, fmt.Errorf("failed with %v", r.Header)
}

func TestTheTokenIsNowhereToBeSeen(t *testing.T) {
	const token = "s3cr3t"
	var told bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&told, nil))
	tell := func(values ...any) {
		for _, v := range values {
			fmt.Fprintf(&told, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
			log.Info("told", "value", v)
			text, _ := json.Marshal(v)
			told.Write(text)
			if err, ok := v.(error); ok {
				for ; err != nil; err = errors.Unwrap(err) {
					fmt.Fprintf(&told, "%v %+v %#v\n", err, err, err)
				}
			}
		}
	}
	for _, name := range []string{
		"http://host?authToken=" + token + "\n", "http://host\n?authToken=" + token, "http://host?authToken=" + token + "%zz",
		"http://host?authToken=" + token + ";x", "http://host?authtoken=" + token, "http://host:" + token, "http://%" + token,
		"http://" + token + "@host", "http://u:" + token + "@host", token + "://host", "http://host#" + token, token,
		"http://host?authToken=" + token + "%0a", "http://host?authToken=" + token + "%20x", "http://host?tls=" + token,
		"http://host?authToken=x&authToken=" + token, "http://host?" + token + "=1", "http://[" + token,
	} {
		c, err := hrana.NewConnector(name, nil)
		tell(c, err)
		_, err = sql.Open("hrana", name)
		tell(err)
		if c != nil { // a line end after it is cut off
			require.NotContains(t, c.String(), token)
		}
	}
	_, err := hrana.NewConnector("http://host", &hrana.Options{Token: token + "\n"})
	tell(err)
	opts := hrana.Options{Token: token}
	tell(opts, &opts, opts.Token)

	f := startFake(t, nil)
	seen := make(chan string, 1)
	f.once(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		f.good(w, r)
	})
	db := openFake(t, f, &opts)
	require.NoError(t, db.Ping())
	require.Equal(t, "Bearer "+token, <-seen)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	tell(db, conn, db.Driver())
	require.NoError(t, conn.Raw(func(c any) error { tell(c); return nil }))
	require.NoError(t, conn.Close())
	for _, echo := range []http.HandlerFunc{
		answer(401, "text/plain", "no such token: "+token), answer(401, "application/json", `{"error":"`+token+`","code":"`+token+`"}`),
		answer(500, "text/html", token), answer(500, "text/plain", strings.Repeat("x", 497)+token), answer(200, "text/html", token),
		answer(200, "application/json", `{"results":[{"type":"error","error":{"message":"`+token+`"}},{"type":"ok","response":{"type":"get_autocommit","is_autocommit":true}}]}`),
		answer(200, "application/json", `{"results":[{"type":"ok","response":{"type":"`+token+`"}},{"type":"ok","response":{"type":"get_autocommit","is_autocommit":true}}]}`),
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://host/?"+token+"\n")
			w.WriteHeader(307)
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		f.once(echo)
		err := db.Ping()
		require.Error(t, err)
		tell(err)
	}
	f.Close()
	tell(db.Ping())
	told.WriteString(openFake(t, f, &hrana.Options{Token: token, Transport: telltale{}}).Ping().Error())
	tell(openFake(t, f, &hrana.Options{Token: token, Transport: telltale{}}).Ping())

	for _, form := range []string{token, fmt.Sprintf("%x", token), fmt.Sprintf("%d", []byte(token))} {
		if i := strings.Index(told.String(), form); i >= 0 {
			require.Failf(t, "the token is told", "%s", told.String()[max(0, i-300):i+len(form)])
		}
	}
}
