package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/outbox/bench/proxy"
)

// serve answers with the host that was asked for and the length of the body.
func serve(t *testing.T, roundTrip time.Duration, label string) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %d", r.Host, n)
	}))
	t.Cleanup(server.Close)
	p, err := proxy.New(server.Listener.Addr().String(), roundTrip, label)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + p.Addr()
}

func ask(t *testing.T, url, body string) (answer string, took time.Duration) {
	t.Helper()
	start := time.Now()
	response, err := http.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), time.Since(start)
}

func TestARequestTakesARoundTripAndALargeOneNoMore(t *testing.T) {
	const roundTrip = 40 * time.Millisecond
	url := serve(t, roundTrip, "")
	ask(t, url, "") // connects
	for _, size := range []int{1, 1 << 20} {
		answer, took := ask(t, url, strings.Repeat("x", size))
		if want := fmt.Sprintf("%s %d", strings.TrimPrefix(url, "http://"), size); answer != want {
			t.Errorf("the answer is %q and should be %q", answer, want)
		}
		if took < roundTrip || took > 10*roundTrip {
			t.Errorf("%d bytes took %v with a round trip of %v", size, took, roundTrip)
		}
	}
}

func TestALabelReplacesTheFirstOfTheHost(t *testing.T) {
	url := serve(t, 0, "n07")
	port := url[strings.LastIndex(url, ":"):]
	for range 2 { // on one connection
		if answer, _ := ask(t, url, "x"); answer != "n07.0.0.1"+port+" 1" {
			t.Errorf("the answer is %q", answer)
		}
	}
}
