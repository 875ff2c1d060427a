package hrana

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

func init() { sql.Register("hrana", Driver{}) }

// Driver is the database/sql driver. It is registered as "hrana".
type Driver struct{}

var _ driver.DriverContext = Driver{}

// Open returns a connection. It sends nothing.
func (d Driver) Open(dataSource string) (driver.Conn, error) {
	c, err := d.OpenConnector(dataSource)
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

// OpenConnector is [NewConnector] without options.
func (Driver) OpenConnector(dataSource string) (driver.Connector, error) {
	return NewConnector(dataSource, nil)
}

// Options are what a data source name does not say. The zero value, and nil, are
// the defaults.
type Options struct {
	// Token is sent to the server with each request. It comes before the
	// authToken of the data source name.
	Token Secret

	// Immediate makes transactions of BeginTx take the write lock at once, by
	// BEGIN IMMEDIATE. Otherwise the first statement that writes takes it, and
	// may find that others have written since the first that read
	// (SQLITE_BUSY). txlock=immediate in the data source name does the same.
	Immediate bool

	// MaxAnswer is how many bytes an answer may have. A longer one is an error,
	// with the code ANSWER_TOO_LARGE. 0 is for 128 MiB.
	MaxAnswer int64

	// Origins are addresses, such as https://node-1.example.com, besides that
	// of the data source name to which the server may send the requests of a
	// stream, and the token with them. Where it asks for others, it is not heard.
	Origins []string

	// Transport sends the requests. nil is for one of the connector's own, which
	// speaks HTTP/1.1, and HTTP/2 over TLS, and takes a proxy from the
	// environment. It must not repeat requests that a server may have got.
	Transport http.RoundTripper
}

// Secret is a text that no verb of package fmt, logger or encoder shows.
type Secret string

// Format writes a stand-in.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[secret]")) }

// MarshalText returns a stand-in.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// Connector makes connections to one server, for [sql.OpenDB].
type Connector struct {
	base      string          // scheme://host[:port][/path]
	origins   map[string]bool // that base_url may lead to
	immediate bool
	maxAnswer int64
	client    *http.Client
	own       *http.Transport // nil if it is the caller's
	token     func() string   // a function, as fmt shows fields

	silent atomic.Int64 // when a farewell was last in vain, in Unix ns, or 0
}

var _ driver.Connector = (*Connector)(nil)

// NewConnector returns a connector for a data source name, as the package's
// documentation describes it. It sends nothing.
func NewConnector(dataSource string, opts *Options) (*Connector, error) {
	if opts == nil {
		opts = new(Options)
	}
	source, err := parseSource(dataSource)
	if err != nil {
		return nil, err
	}
	token := source.token
	if opts.Token != "" {
		token = string(opts.Token)
	}
	if err := checkToken(token); err != nil {
		return nil, err
	}
	c := &Connector{
		base:      source.base,
		origins:   map[string]bool{source.origin: true},
		immediate: source.immediate || opts.Immediate,
		maxAnswer: opts.MaxAnswer,
		token:     func() string { return token },
	}
	for _, origin := range opts.Origins {
		parsed, err := parseOrigin(origin)
		if err != nil {
			return nil, err
		}
		c.origins[parsed] = true
	}
	if c.maxAnswer <= 0 {
		c.maxAnswer = 128 << 20
	}
	transport := opts.Transport
	if transport == nil {
		c.own = newTransport()
		transport = c.own
	}
	c.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:    1024, // the pool of connections is database/sql's
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // costs more than it saves
	}
}

// Connect returns a connection. It sends nothing: the first statement opens the stream.
func (c *Connector) Connect(context.Context) (driver.Conn, error) {
	return &conn{stream: stream{to: c}}, nil
}

// Driver returns the driver.
func (c *Connector) Driver() driver.Driver { return Driver{} }

// Close closes idle connections to the server. (*sql.DB).Close calls it.
func (c *Connector) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// String returns the server's address.
func (c *Connector) String() string { return "hrana(" + c.base + ")" }

// GoString returns the server's address.
func (c *Connector) GoString() string { return c.String() }

// redact takes the token out of what somebody else wrote.
func (c *Connector) redact(e *Error) *Error {
	token := c.token()
	if e == nil || token == "" {
		return e
	}
	e.message = strings.ReplaceAll(e.message, token, "[secret]")
	e.code = strings.ReplaceAll(e.code, token, "[secret]")
	if e.cause != nil && strings.Contains(e.cause.Error(), token) {
		e.cause = nil
	}
	return e
}
