package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	_ "example.com/outbox/hrana"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// telltale is a driver that fails, and says what it was given.
type telltale struct {
	say func(dataSourceName string) error
}

func (d telltale) Open(name string) (driver.Conn, error) { return nil, d.say(name) }

// telltaleConn fails at its first statement.
type telltaleConn struct {
	name string
	say  func(dataSourceName string) error
}

func (c telltaleConn) Prepare(string) (driver.Stmt, error) { return nil, c.say(c.name) }
func (c telltaleConn) Begin() (driver.Tx, error)           { return nil, c.say(c.name) }
func (telltaleConn) Close() error                          { return nil }

type lateTelltale struct{ telltale }

func (d lateTelltale) Open(name string) (driver.Conn, error) { return telltaleConn{name, d.say}, nil }

func register(d driver.Driver) string {
	name := "telltale-" + uuid.NewString()
	sql.Register(name, d)
	return name
}

func TestNothingThatOpenSaysShowsTheToken(t *testing.T) {
	t.Chdir(t.TempDir()) // some drivers take anything for a file
	const token = "eyJhbGciOiJFZERTQSJ9.c2VjcmV0"
	says := func(format string) func(string) error {
		return func(name string) error { return fmt.Errorf(format, name) }
	}
	drivers := map[string]string{
		"libsql":       "libsql",
		"hrana":        "hrana",
		"unregistered": "no such driver",
		"cites":        register(telltale{says("cannot open %s")}),
		"quotes":       register(telltale{says("cannot open %q")}),
		"cites late":   register(lateTelltale{telltale{says("cannot use %s: database disk image is malformed")}}),
		"wraps":        register(telltale{func(name string) error { return &url.Error{Op: "Get", URL: name, Err: context.DeadlineExceeded} }}),
		"cuts": register(telltale{func(name string) error {
			return errors.New(name[:min(len(name), strings.Index(name+"eyJ", "eyJ")+8)] + "…")
		}}),
		"escapes":        register(telltale{func(name string) error { return errors.New(url.QueryEscape(name)) }}),
		"panics":         register(telltale{func(name string) error { panic(name) }}),
		"panics late":    register(lateTelltale{telltale{func(name string) error { panic(fmt.Errorf("cannot open %q", name)) }}}),
		"panics at once": register(panickingContext{}),
	}
	names := map[string]string{
		"parameter":       "http://127.0.0.1:1?authToken=" + token,
		"newline after":   "http://127.0.0.1:1?authToken=" + token + "\n",
		"newline inside":  "http://127.0.0.1:1?authToken=" + token[:12] + "\n" + token[12:],
		"newline before":  "http://127.0.0.1:1\n?authToken=" + token,
		"NUL":             "http://127.0.0.1:1?authToken=" + token + "\x00",
		"NUL before":      "\x00libsql://127.0.0.1:1?authToken=" + token,
		"bad escape":      "http://127.0.0.1:1?authToken=" + token + "%zz",
		"bad escape host": "libsql://%zz?authToken=" + token,
		"no UTF-8":        "http://127.0.0.1:1?authToken=\xff" + token,
		"escaped":         "http://127.0.0.1:1?authToken=" + url.QueryEscape(token+"\n"),
		"bad port":        "http://127.0.0.1:port?authToken=" + token,
		"no host":         "libsql://?authToken=" + token,
		"no scheme":       "127.0.0.1:1?authToken=" + token,
		"odd scheme":      "gopher://127.0.0.1:1?authToken=" + token,
		"no mark":         "http://127.0.0.1:1 authToken=" + token,
		"other case":      "http://127.0.0.1:1?AUTHTOKEN=" + token,
		"other name":      "http://127.0.0.1:1?jwt=" + token,
		"user":            "http://" + token + "@127.0.0.1:1",
		"password":        "http://me:" + token + "@127.0.0.1:1",
		"password with /": "http://me:a/" + token + "@127.0.0.1:1",
		"twice":           "http://127.0.0.1:1?authToken=" + token + "&authToken=" + token,
		"with more":       "http://127.0.0.1:1?authToken=" + token + "&tls=2#x",
		"file":            "file:no/such/folder/x.db?authToken=" + token,
		"file with key":   "file:no/such/folder/x.db?_pragma=key('" + token + "')",
		"file with pass":  "file:no/such/folder/x.db?_auth_pass=" + token,
	}
	for driverName, registered := range drivers {
		for what, name := range names {
			var told bytes.Buffer
			opts := &outbox.Options{BusyTimeout: -1, Logger: slog.New(slog.NewTextHandler(&told, nil))}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			store, err := outbox.Open(ctx, registered, name, opts)
			for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%s"} {
				fmt.Fprintf(&told, verb+verb+"\n", err, store)
			}
			if err == nil {
				_, err = store.Append(ctx, row(uuid.New(), 0))
				fmt.Fprintln(&told, err)
				require.NoError(t, store.Close())
			} else {
				_, swapped := outbox.Open(ctx, name, registered, opts)
				fmt.Fprintln(&told, swapped)
			}
			cancel()
			requireUntold(t, told.String(), token, driverName+", "+what)
		}
	}
}

// requireUntold fails the test if a text has a part of a token in it.
func requireUntold(t *testing.T, text, token, where string) {
	t.Helper()
	for _, form := range []string{token, fmt.Sprintf("%x", token), base64.StdEncoding.EncodeToString([]byte(token))} {
		const part = 6
		for i := range len(form) - part + 1 {
			require.NotContains(t, text, form[i:i+part], where)
		}
	}
}

// panickingContext is a driver whose connector cannot even be had.
type panickingContext struct{ telltale }

func (panickingContext) OpenConnector(name string) (driver.Connector, error) { panic(name) }

func TestAnErrorThatSaysLessMeansTheSame(t *testing.T) {
	for text, want := range map[string]error{
		"database disk image is malformed":     outbox.ErrCorrupt,
		"unable to open database file":         outbox.ErrUnavailable,
		"attempt to write a readonly database": outbox.ErrReadOnly,
	} {
		name := register(telltale{func(name string) error { return errors.New(name + ": " + text) }})
		_, err := outbox.Open(t.Context(), name, "file:x.db?key=0123456789", nil)
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), "0123456789")
	}
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		name := register(telltale{func(name string) error { return fmt.Errorf("%s: %w", name, want) }})
		_, err := outbox.Open(t.Context(), name, "file:x.db?key=0123456789", nil)
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), "0123456789")
	}
}
