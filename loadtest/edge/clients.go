package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// manner is the use of connections by a client.
type manner int

const (
	kept manner = iota // HTTP/1.1, one connection for all requests of a server
	once               // HTTP/1.1, a connection for each request
	two                // HTTP/2
)

// prober sends requests, one at a time.
type prober struct {
	scheme string
	manner manner
	what   string
	client *http.Client
	sent   atomic.Int64
}

// answerTime is the longest time for an answer.
const answerTime = 15 * time.Second

func (m *Mesh) prober(scheme string, how manner) *prober {
	address := m.Plain
	if scheme == "https" {
		address = m.TLS
	}
	dialer := net.Dialer{Timeout: answerTime}
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		},
		DisableKeepAlives: how == once, ForceAttemptHTTP2: how == two, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{RootCAs: m.keys.pool, MinVersion: tls.VersionTLS12},
	}
	if how != two {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	what := map[manner]string{kept: "kept", once: "new", two: "HTTP/2"}[how] + " " + scheme
	return &prober{scheme: scheme, manner: how, what: what, client: &http.Client{Transport: t, Timeout: answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// ask sends one request. It is a POST, which Go's client repeats only if the server cannot have begun to answer it: if
// nothing of it was written, or if the server says so (GOAWAY).
func (p *prober) ask(ctx context.Context, host string) answer {
	n := strconv.FormatInt(p.sent.Add(1), 10)
	path := "/"
	if rand.IntN(100) == 0 {
		path = slowPath
	}
	authority := host
	if p.scheme == "http" {
		authority = "edge" // all hosts have one connection
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.scheme+"://"+authority+path, strings.NewReader(n))
	if err != nil {
		return answer{err: err}
	}
	req.Host = host
	res, err := p.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, body: string(body), err: err}
	if res.TLS != nil {
		a.serial = res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if err != nil || a.status != http.StatusOK {
		return a
	}
	a.edition, err = strconv.Atoi(res.Header.Get("x-edition"))
	ip, echo, _ := strings.Cut(a.body, " ")
	if a.ip = ip; err != nil || echo != n {
		a.err = fmt.Errorf("request %s: edition %q, body %q", n, res.Header.Get("x-edition"), a.body)
	}
	return a
}

// judged sends a request to a site and counts and judges the answer. Of requests that the end of the run cuts off
// nothing is counted.
func (m *Mesh) judged(ctx context.Context, p *prober, s *site, host string) answer {
	from, serial := s.begun()
	began := time.Now()
	a := p.ask(ctx, host)
	if ctx.Err() != nil {
		return a
	}
	why, permitted := s.judge(from, serial, p.manner == once, a)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Requests++
	if permitted {
		m.report.Permitted++
	}
	if p.manner == once && p.scheme == "https" {
		m.report.Handshake++
	}
	if why != "" {
		m.report.Failures = append(m.report.Failures, fmt.Sprintf("%s, at %s, after %v: %s", p.what, began.Format("05.000"),
			time.Since(began).Round(time.Millisecond), why))
	}
	return a
}

// mix is the share of requests by kind of client, in percent.
var mix = []struct {
	scheme string
	manner manner
	share  int
}{{"http", kept, 45}, {"https", kept, 20}, {"https", two, 20}, {"http", once, 10}, {"https", once, 5}}

// perClient is the number of requests per second of one client, unless answers are slower.
const perClient = 20

// startClients starts the clients. Each sends requests to random sites.
func (m *Mesh) startClients(ctx context.Context, wg *sync.WaitGroup) {
	for i, kind := range mix {
		for j := range max(1, m.Rate*kind.share/100/perClient) {
			random := rand.New(rand.NewPCG(m.Seed, uint64(1000*i+j)))
			p := m.prober(kind.scheme, kind.manner)
			wg.Go(func() {
				defer p.client.CloseIdleConnections()
				m.send(ctx, p, random)
			})
		}
	}
}

// send sends requests at a constant pace until the context ends. It makes up for late requests, up to a second.
func (m *Mesh) send(ctx context.Context, p *prober, random *rand.Rand) {
	const each = time.Second / perClient
	for due := time.Now().Add(time.Duration(random.Int64N(int64(each)))); ; due = due.Add(each) {
		if late := time.Since(due); late > time.Second {
			due = due.Add(late - time.Second)
		}
		if pause(ctx, time.Until(due)) != nil {
			return
		}
		s := m.sites[random.IntN(len(m.sites))]
		m.judged(ctx, p, s, s.host)
	}
}
