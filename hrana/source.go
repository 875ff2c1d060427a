package hrana

import (
	"net/url"
	"strings"

	"example.com/outbox/sqlbatch"
)

// source is a data source name taken apart.
type source struct {
	base, origin string
	token        string
	immediate    bool
}

// parseSource reads a data source name. As there may be a token anywhere in it, no
// error repeats any of it, nor wraps one of package url, which do.
func parseSource(name string) (*source, error) {
	bad := func(what string) error { return refuse(sqlbatch.CodeArgsInvalid, "data source name: %s", what) }
	u, err := url.Parse(strings.TrimSpace(name))
	if err != nil {
		return nil, bad("it is not a URL")
	}
	if u.User != nil {
		return nil, bad("it has a user or password, which are not used; a token is given as authToken")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("what follows the ? is not well formed")
	}
	if u.Fragment != "" || u.Opaque != "" {
		return nil, bad("it is not of the form scheme://host:port")
	}
	s := new(source)
	tls := ""
	for key, values := range query {
		if len(values) != 1 {
			return nil, bad("a parameter is given twice")
		}
		switch value := values[0]; key {
		case "authToken":
			s.token = value
		case "tls":
			if tls = value; tls != "0" && tls != "1" {
				return nil, bad("tls is neither 0 nor 1")
			}
		case "txlock":
			switch value {
			case "immediate":
				s.immediate = true
			case "deferred":
			default:
				return nil, bad("txlock is neither deferred nor immediate")
			}
		default:
			return nil, bad("it has a parameter other than authToken, tls and txlock")
		}
	}
	switch {
	case u.Scheme == "libsql" && tls == "0":
		u.Scheme = "http"
	case u.Scheme == "libsql":
		u.Scheme = "https"
	case u.Scheme == "http" && tls != "1", u.Scheme == "https" && tls != "0":
	case u.Scheme == "http", u.Scheme == "https":
		return nil, bad("tls contradicts the scheme")
	default:
		return nil, bad("its scheme is none of http, https and libsql")
	}
	if u.Hostname() == "" {
		return nil, bad("it names no host")
	}
	s.origin = originOf(u)
	u.RawQuery, u.ForceQuery = "", false
	s.base = strings.TrimRight(u.String(), "/")
	return s, nil
}

// originOf returns scheme, host and port, written in one way only.
func originOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	case u.Scheme == "https":
		port = "443"
	}
	return u.Scheme + "://" + host + ":" + port
}

func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", refuse(sqlbatch.CodeArgsInvalid, "one of Options.Origins is not of the form https://host:port")
	}
	return originOf(u), nil
}

// checkToken refuses what a header cannot carry, before net/http tells about it.
func checkToken(token string) error {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' {
			return refuse(sqlbatch.CodeArgsInvalid, "the token has a character in it that no token has")
		}
	}
	return nil
}
