package engine

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// secret is what no error may show of a data source name: its token or password.
type secret []string

// secretParts finds the value of a token or key among the parameters, and the
// password in front of a host. It does not parse: a name that cannot be parsed has
// secrets, too.
var secretParts = regexp.MustCompile(`(?is)(?:token|jwt|password|passwd|key|secret)=([^&#]*)|//[^/?#:@]*:([^/?#]*)@`)

func secretOf(dataSourceName string) secret {
	var found secret
	for _, match := range secretParts.FindAllStringSubmatch(dataSourceName, -1) {
		for _, text := range match[1:] {
			if text == "" {
				continue
			}
			found = append(found, text)
			if plain, err := url.QueryUnescape(text); err == nil {
				found = append(found, plain)
			}
		}
	}
	return found
}

// keptFrom returns err, or one that says less if its text shows the secret in
// whatever form, or a part of it: a driver may quote it, cut it or escape it.
func (s secret) keptFrom(err error) error {
	if err == nil || len(s) == 0 {
		return err
	}
	text := err.Error()
	for _, one := range s {
		for _, form := range append(strings.FieldsFunc(one, isOdd), one, url.QueryEscape(one), strings.Trim(strconv.Quote(one), `"`)) {
			if len(form) >= shortestSecret && strings.Contains(text, form) || form == one && strings.Contains(text, one) {
				return errors.New("what the driver says is left out, since it shows the token of the data source name")
			}
		}
	}
	return err
}

// shortestSecret is how long a part of a secret must be to tell anything of it.
const shortestSecret = 4

// isOdd reports whether a character of a secret may be shown in another form.
func isOdd(r rune) bool {
	return r < '!' || r > '~' || strings.ContainsRune("%+\\\"'`<>", r)
}
