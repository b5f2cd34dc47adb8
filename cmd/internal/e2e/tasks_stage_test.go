package e2e

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"navarch.io/navarch/push/envoytest"
)

// taskVersions are the addresses of the versions of reviews, within the net of the mesh.
var taskVersions = map[string]string{"v1": ".2", "v2": ".3"}

// taskStage is the environment in which tasks run.
type taskStage struct {
	t       *testing.T
	at, dir string
	proxies map[string]proxy             // by version, and the client's
	ca      string                       // file of the root of the server outside of the mesh
	keys    string                       // key set, as JSON
	tokens  map[string]string            // by what they are
	filled  []string                     // more that tasks' YAML leaves open, each with what it stands for
	first   map[string]map[string]string // answering instance by host and key, of a line of keys

	collector *taskCollector
}

// taskApp returns an application that answers with its version; ?delay=DURATION delays the answer. The version that the
// header Lost names answers 503.
func taskApp(version string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := time.ParseDuration(r.URL.Query().Get("delay")); err == nil {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
		}
		w.Header().Set("X-App", version)
		if r.Header.Get("Lost") == version {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, version)
	})
}

func (s *taskStage) listen(address string) net.Listener {
	s.t.Helper()
	l, err := net.Listen("tcp", s.at+address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l
}

// serve starts the applications, servers outside of the mesh (two in clear, one with TLS, one that reports the spelling
// of headers), an external authoriser, and collectors, and makes keys for tokens.
func (s *taskStage) serve() {
	s.t.Helper()
	run := func(l net.Listener, h http.Handler) { go func() { _ = http.Serve(l, h) }() }
	for version, address := range taskVersions {
		run(s.listen(address+":9080"), taskApp(version))
		go accept(s.listen(address+":9190"), tcpApp(version))
	}
	run(s.listen(".7:8080"), taskApp("far"))
	run(s.listen(".8:8080"), taskApp("other"))
	go accept(s.listen(".7:8600"), headerApp)
	s.collect(s.listen(".8:8501"))
	ext := httptest.NewUnstartedServer(taskApp("ext"))
	ext.Listener.Close()
	ext.Listener = s.listen(".9:8443")
	ext.StartTLS()
	s.t.Cleanup(ext.Close)
	s.ca = filepath.Join(s.t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ext.Certificate().Raw}), 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.serveGateways(ext.TLS.Certificates[0])
	run(s.listen(".8:8500"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Ext-Authz") != "allow" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	s.tokens = map[string]string{"good": s.token(true), "bad": s.token(false)}
}

// token returns a token of issuer "tester" with the claim group=readers. published determines whether the key set
// contains its key.
func (s *taskStage) token(published bool) string {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	if published {
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
		if err != nil {
			s.t.Fatal(err)
		}
		s.keys = string(set)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: "tester", Subject: "user", Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}).
		Claims(map[string]any{"group": "readers"}).Serialize()
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// fill puts in what a task's YAML leaves open.
func (s *taskStage) fill(text string) string {
	return strings.NewReplacer(append(s.filled, "NET", s.at, "$CA", s.ca, "$JWKS", s.keys, "$DIR", filepath.Dir(s.ca))...).Replace(text)
}

// counts are the first words of lines that only count what requests have left behind.
var counts = []string{"stat", "log", "told"}

// play runs one line once. The error describes the difference from the expected result. Lines are:
//
//	METHOD PATH [HEADER=VALUE]... [host=HOST] [WAY]... [token=TOKEN] [who=HEADER] [xN] [min=DURATION] -> STATUS [WHO=COUNT]...
//	tcp [xN] -> WHO=COUNT...
//	keys HOST KEY N -> [WHO=COUNT]... [moved=COUNT]
//	stat PROXY TEXT -> COUNT
//	log FILE TEXT -> COUNT
//	told TEXT... -> COUNT
//
// WHO is the answering instance: the version of an application, in the answer's header X-App (or the header that who
// names), or envoy. A request goes through the client's proxy (WAY port=PORT) or, with plain=VERSION, in clear to the
// proxy of a version, or, with at=ADDRESS, to a gateway. With sni=NAME it is sent by TLS, and with from=ADDRESS by the
// PROXY protocol for a client at that address.
// STATUS is 000 without an answer. N requests are sent at once. COUNT is N, N.. or N..M. stat counts the sum of an
// Envoy's counters whose names contain the text, log the lines of a file that contain it, and told the collector's
// spans and log entries with all of the texts. The method hashed documents keys.
func (s *taskStage) play(line string) error {
	do, want, is := strings.Cut(line, " -> ")
	fields, wanted := strings.Fields(do), strings.Fields(want)
	if !is || len(fields) < 1 || len(wanted) < 1 {
		return errors.New("no line of a task")
	}
	switch fields[0] {
	case "stat":
		stats, err := envoytest.Stats(s.proxies[fields[1]].admin)
		if err != nil {
			return err
		}
		sum := 0
		for name, n := range stats {
			if strings.Contains(name, fields[2]) {
				sum += n
			}
		}
		return isCount(sum, wanted[0])
	case "log":
		text, err := os.ReadFile(s.fill(fields[1]))
		if err != nil {
			return err
		}
		return isCount(strings.Count(string(text), s.fill(fields[2])), wanted[0])
	case "told":
		n, last := s.collector.count(strings.Fields(s.fill(strings.Join(fields[1:], " "))))
		if err := isCount(n, wanted[0]); err != nil {
			return fmt.Errorf("%w; the last is %s", err, last)
		}
		return nil
	case "keys":
		return s.hashed(fields[1:], wanted)
	case "tcp":
		return s.all(fields[1:], wanted, func([]string) (status, who string) { return "", s.connect() })
	}
	return s.all(fields, wanted[1:], func(f []string) (string, string) { return s.request(f) }, wanted[0])
}

// isCount returns an error unless a number agrees with a COUNT.
func isCount(n int, count string) error {
	from, to, isRange := strings.Cut(count, "..")
	low, err := strconv.Atoi(from)
	high := low
	if isRange && err == nil {
		if high = math.MaxInt; to != "" {
			high, err = strconv.Atoi(to)
		}
	}
	if err != nil || n < low || n > high {
		return fmt.Errorf("%d, want %s", n, count)
	}
	return nil
}

// all does one thing xN times at once, and compares the answering instances and statuses: all must have that status, or
// as many as the counts of other statuses permit.
func (s *taskStage) all(fields, shares []string, do func(fields []string) (status, who string), status ...string) error {
	n, least := 1, time.Duration(0)
	fields = slices.DeleteFunc(slices.Clone(fields), func(f string) bool {
		if d, is := strings.CutPrefix(f, "min="); is {
			least, _ = time.ParseDuration(d)
			return true
		}
		if count, is := strings.CutPrefix(f, "x"); is {
			if k, err := strconv.Atoi(count); err == nil {
				n = k
				return true
			}
		}
		return false
	})
	var mu sync.Mutex
	var answers sync.WaitGroup
	whos, wrong, began := map[string]int{}, map[string]int{}, time.Now()
	for range n {
		answers.Go(func() {
			got, who := do(fields)
			mu.Lock()
			defer mu.Unlock()
			whos[who]++
			if len(status) > 0 && got != status[0] {
				wrong[got]++
				whos[got]++
			}
		})
	}
	answers.Wait()
	if took := time.Since(began); took < least {
		return fmt.Errorf("it took %v", took)
	}
	for _, share := range shares {
		last := max(strings.LastIndexByte(share, '='), 0) // names of instances may have the character
		who, of := share[:last], share[last+1:]
		if err := isCount(whos[who], of); err != nil {
			return fmt.Errorf("%v, want %s", whos, share)
		}
		delete(wrong, who) // a status that is expected of some
	}
	if len(wrong) > 0 {
		return fmt.Errorf("status %v, want %s", slices.Collect(maps.Keys(wrong)), status[0])
	}
	return nil
}

// connect returns the answer of the TCP port of reviews through the client's proxy.
func (s *taskStage) connect() (who string) {
	if who, err := answer(net.DialTimeout("tcp", s.at+".1:9000", patience)); err == nil {
		return who
	}
	return "nobody"
}

// answer returns the text that arrives on a connection to that port.
func answer(c net.Conn, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, "?")
	text, err := io.ReadAll(c)
	if len(text) == 0 {
		return "", fmt.Errorf("nobody answers: %w", cmp.Or(err, io.EOF))
	}
	return string(text), nil
}

// request sends one request, and returns the answering instance.
func (s *taskStage) request(fields []string) (status, who string) {
	host, address, says := "reviews.shop.svc.cluster.local", s.at+".1:8000", "X-App"
	r, err := http.NewRequest(fields[0], "http://"+address+fields[1], nil)
	if err != nil {
		return "000", err.Error()
	}
	transport := &http.Transport{DisableKeepAlives: true}
	for _, f := range fields[2:] {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "at":
			r.URL.Host = s.at + value
		case "sni":
			r.URL.Scheme, transport.TLSClientConfig = "https", unverified(value)
		case "from":
			transport.DialContext = proxied(value)
		case "host":
			host = value
		case "port":
			r.URL.Host = s.at + ".1:" + value
		case "who":
			says = value
		case "plain":
			r.URL.Host = s.at + taskVersions[value] + ":8080"
		case "token":
			r.Header.Set("Authorization", "Bearer "+s.tokens[value])
		default:
			r.Header[name] = []string{value} // the name's case is preserved
		}
	}
	r.Host = host
	client := http.Client{Timeout: patience, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		return "000", "nobody"
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if who = res.Header.Get(says); who == "" {
		who = "envoy"
	}
	return strconv.Itoa(res.StatusCode), who
}
