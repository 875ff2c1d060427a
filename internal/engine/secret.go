package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// secret is what no error and no log may show of a data source name: the forms
// that its token or password may be written in.
type secret []string

// secretParts finds the values of parameters that hold a token or a key, in a
// text that need not be a URL: one that cannot be parsed has secrets, too.
var secretParts = regexp.MustCompile(`(?i)(?:token|jwt|pass[a-z]*|key|secret|auth)(?:=|\()([^&#]*)`)

// secretOf returns the secret of what was given as names. (A driver's and a data
// source's are easily confused.)
func secretOf(names ...string) (found secret) {
	for _, name := range names {
		for _, match := range secretParts.FindAllStringSubmatch(name, -1) {
			found.add(match[1])
		}
		scheme, rest, _ := strings.Cut(name, "://")
		if at := strings.LastIndex(rest, "@"); at >= 0 && !strings.EqualFold(scheme, "file") {
			_, password, _ := strings.Cut(rest[:at], ":")
			found.add(rest[:at])
			found.add(password)
		}
	}
	return found
}

func (s *secret) add(text string) {
	plain, err := url.QueryUnescape(text)
	if err != nil {
		plain = text
	}
	for _, form := range []string{text, plain, url.QueryEscape(text), strings.Trim(strconv.Quote(text), `"`)} {
		if form != "" && !slices.Contains(*s, form) {
			*s = append(*s, form)
		}
	}
}

// keptFrom returns err, or one that means the same and says less if its text
// shows the secret or a part of it: a driver may quote it or cut it.
func (s secret) keptFrom(err error) error {
	if err == nil || !s.isIn(err.Error()) {
		return err
	}
	shown := errors.New("what the driver says is left out, since it shows the token of the data source name")
	switch {
	case isBroken(err):
		return brokenError{shown}
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", context.Canceled, shown)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, shown)
	}
	return withMeaning(err, shown)
}

// tellingPart is how many bytes of a secret say something of it.
const tellingPart = 6

func (s secret) isIn(text string) bool {
	for _, form := range s {
		for end := min(tellingPart, len(form)); end <= len(form); end++ {
			if strings.Contains(text, form[max(0, end-tellingPart):end]) {
				return true
			}
		}
	}
	return false
}
