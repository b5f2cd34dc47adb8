package attest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxKeySet bounds an answer of a key endpoint, in bytes.
const maxKeySet = 1 << 20

// maxWaiting bounds the tokens that wait, where others of the issuer can be verified, until keys are fetched: whoever has made up the name of a
// key may wait as long as an endpoint takes to answer (issue 12, fault 21). A server checks more than so many credentials at once
// (ca/serve, Limits.Checks).
const maxWaiting = 2

// KeysConfig says where an issuer's public keys come from: exactly one of Discovery, URL, File and Ask.
type KeysConfig struct {
	Discovery string // an OpenID issuer: the keys are where <issuer>/.well-known/openid-configuration says
	URL       string // of a JWKS
	File      string // a JWKS, or public keys as PEM
	// Ask fetches a JWKS together with the name of its issuer, which is not known otherwise (Keys.Issuer). Whose says of whom it asks.
	Ask   func(context.Context) (issuer string, jwks []byte, err error)
	Whose string
	// Memory is a file in which the last answer to Ask is kept for the next start; empty: none.
	Memory string
	// Before are keys that stand until Ask has answered once, in place of those of Memory; nil, or not loaded: there are none.
	Before *Keys
	// Client fetches; it brings what the endpoint asks for (its CA, a bearer token for kube-apiserver). nil: a plain one.
	Client      *http.Client
	Refresh     time.Duration // how often in the background: 5 min (a file: 30 s)
	MinInterval time.Duration // at least so long between refreshes that unknown keys ask for: 10 s
	Timeout     time.Duration // of one refresh: 10 s
	Log         *slog.Logger
	Now         func() time.Time
}

// Keys are an issuer's public keys: fetched in the background, the last good ones kept while the endpoint is down, and
// fetched once more, at a limited rate, when a token names a key that is not among them. Safe for concurrent use. They are not a RemoteKeySet of
// go-oidc: that fetches whenever a token names a key that it has not, as often as tokens do.
type Keys struct {
	cfg     KeysConfig
	source  string
	load    func(context.Context) (issuer string, keys []byte, err error)
	set     atomic.Pointer[keySet]
	fetched atomic.Pointer[time.Time]
	waiting atomic.Int32 // tokens, for keys that are not among those that are loaded

	mu       sync.Mutex // a leaf: never held over a fetch
	flight   *flight
	demanded time.Time // start of the last refresh that an unknown key asked for
	failed   error     // of the last refresh
}

// flight is a fetch under way. It is no singleflight.Group: who joins one does not count against MinInterval, and who begins one does.
type flight struct {
	done chan struct{}
	err  error // read after done
}

// NewKeys checks the configuration and starts nothing: Run keeps the keys fresh; without it they are fetched when asked for.
// An error: there is not exactly one way to them, or a URL that is not https.
func NewKeys(cfg KeysConfig) (*Keys, error) {
	k := &Keys{cfg: cfg}
	given := 0
	for _, s := range []string{cfg.Discovery, cfg.URL, cfg.File} {
		if s != "" {
			given, k.source = given+1, s
		}
	}
	if cfg.Ask != nil {
		given, k.source = given+1, cfg.Whose
	}
	if given != 1 {
		return nil, errors.New("token keys: exactly one of issuer discovery, URL, file and whom to ask must be given")
	}
	every := 5 * time.Minute
	switch {
	case cfg.File != "":
		every = 30 * time.Second
		k.load = nameless(k.readFile)
	case cfg.Ask != nil:
		k.load = cfg.Ask
	case cfg.URL != "":
		k.load = nameless(func(ctx context.Context) ([]byte, error) { return k.get(ctx, cfg.URL) })
	default:
		k.load = nameless(k.discover)
	}
	if cfg.File == "" && cfg.Ask == nil {
		if err := checkURL(k.source); err != nil {
			return nil, fmt.Errorf("token keys: %w", err)
		}
	}
	k.cfg.Refresh = cmp.Or(cfg.Refresh, every)
	k.cfg.MinInterval = cmp.Or(cfg.MinInterval, 10*time.Second)
	k.cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	if cfg.Client == nil {
		k.cfg.Client = &http.Client{CheckRedirect: checkRedirect}
	}
	if cfg.Log == nil {
		k.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		k.cfg.Now = time.Now
	}
	if before := cfg.Before; before != nil && before.Loaded() {
		k.set.Store(before.set.Load())
	} else {
		k.remembered()
	}
	k.cfg.Before = nil // what it holds is taken
	return k, nil
}

// nameless loads keys whose issuer is known already.
func nameless(load func(context.Context) ([]byte, error)) func(context.Context) (string, []byte, error) {
	return func(ctx context.Context) (string, []byte, error) {
		text, err := load(ctx)
		return "", text, err
	}
}

// StaticKeys are keys that do not change, from a JWKS or PEM. An error: it is neither, or has no key that verifies tokens.
func StaticKeys(text []byte) (*Keys, error) {
	set, _, err := parseKeys(text)
	if err != nil {
		return nil, err
	}
	k := &Keys{source: "static keys"}
	k.set.Store(set)
	return k, nil
}

// checkURL wants https: who changes keys on their way can be anyone in the mesh. Loopback is excepted.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil {
		return fmt.Errorf("%q is no URL of keys", s)
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	if u.Scheme != "https" && !(u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback())) {
		return fmt.Errorf("%q must be https", s)
	}
	return nil
}

// checkRedirect keeps an endpoint from leading to plain text.
func checkRedirect(r *http.Request, before []*http.Request) error {
	if len(before) >= 5 {
		return errors.New("more than 5 redirections")
	}
	return checkURL(r.URL.String())
}

// Run refreshes until ctx ends, and returns its error. After a failure it tries again from one second on, doubling. It logs
// when keys stop or start to be had.
func (k *Keys) Run(ctx context.Context) error {
	if k.load == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	retry := time.Second
	failing := false
	for {
		err := k.Refresh(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := k.cfg.Refresh
		if err != nil {
			if !failing {
				k.cfg.Log.Warn("token keys cannot be refreshed; the last good ones stay in use", "source", k.source, "loaded", k.Loaded(), "error", err)
			}
			wait = min(retry, wait)
			retry = min(2*retry, k.cfg.Refresh)
		} else {
			if failing {
				k.cfg.Log.Info("token keys refreshed again", "source", k.source)
			}
			retry = time.Second
		}
		failing = err != nil
		wait += time.Duration(rand.Int64N(int64(wait)/10 + 1)) // replicas do not ask in step
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Refresh fetches the keys now, or waits for the fetch under way. An error says why there are none, or that ctx has ended.
func (k *Keys) Refresh(ctx context.Context) error {
	return wait(ctx, k.start(true))
}

// Loaded reports whether there are keys: before, tokens cannot be verified.
func (k *Keys) Loaded() bool { return k.set.Load() != nil }

// find gives the keys of an id, fetching once where there are none.
func (k *Keys) find(ctx context.Context, id string) ([]publicKey, error) {
	if found := k.set.Load().find(id); len(found) != 0 {
		return found, nil
	}
	if id == "" && k.Loaded() {
		return nil, fmt.Errorf("%w: the token names no key, and its issuer has several", ErrUnknownKey)
	}
	if f := k.start(false); f != nil {
		if k.Loaded() { // others come with keys that are known, and have to find room to be checked
			if k.waiting.Add(1) > maxWaiting {
				k.waiting.Add(-1)
				return nil, fmt.Errorf("%w: key %.80q is not known, and the issuer's keys are being fetched: try again", ErrUnavailable, id)
			}
			defer k.waiting.Add(-1)
		}
		if err := wait(ctx, f); err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: waiting for the keys of the token's issuer: %w", ErrUnavailable, err)
		}
		if found := k.set.Load().find(id); len(found) != 0 {
			return found, nil
		}
	}
	k.mu.Lock()
	failed := k.failed
	k.mu.Unlock()
	if failed != nil {
		// Not wrapped: its deadline is not the caller's.
		return nil, fmt.Errorf("%w: key %.80q is not known, and the issuer's keys cannot be fetched: %v", ErrUnavailable, id, failed)
	}
	return nil, fmt.Errorf("%w: %.80q is not among the issuer's keys", ErrUnknownKey, id)
}

// start begins a refresh, or joins the one under way. Refreshes that nobody schedules are limited: nil.
func (k *Keys) start(scheduled bool) *flight {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight != nil {
		return k.flight
	}
	if k.load == nil {
		return nil
	}
	if !scheduled {
		now := k.cfg.Now()
		if !k.demanded.IsZero() && now.Sub(k.demanded) < k.cfg.MinInterval {
			return nil
		}
		k.demanded = now
	}
	f := &flight{done: make(chan struct{})}
	k.flight = f
	go func() {
		// Its own context: whoever waits may give up, others still wait.
		ctx, cancel := context.WithTimeout(context.Background(), k.cfg.Timeout)
		defer cancel()
		f.err = k.fetch(ctx)
		k.mu.Lock()
		k.flight, k.failed = nil, f.err
		k.mu.Unlock()
		close(f.done)
	}()
	return f
}

func wait(ctx context.Context, f *flight) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *Keys) fetch(ctx context.Context) error {
	issuer, text, err := k.load(ctx)
	if err != nil {
		return fmt.Errorf("fetch keys from %s: %w", k.source, err)
	}
	set, skipped, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("keys from %s: %w", k.source, err)
	}
	if set.issuer = issuer; k.cfg.Ask != nil {
		if err := checkIssuer(issuer); err != nil {
			return fmt.Errorf("keys from %s: %w", k.source, err)
		}
		k.remember(issuer, text)
	}
	if len(skipped) != 0 {
		k.cfg.Log.Debug("keys left out", "source", k.source, "why", skipped)
	}
	k.set.Store(set)
	at := k.cfg.Now()
	k.fetched.Store(&at)
	return nil
}

// Fetched is when the keys were last fetched with success; the zero time: never, or they are static.
func (k *Keys) Fetched() time.Time {
	if at := k.fetched.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (k *Keys) readFile(context.Context) ([]byte, error) {
	f, err := os.Open(k.cfg.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

func (k *Keys) discover(ctx context.Context) ([]byte, error) {
	text, err := k.get(ctx, strings.TrimSuffix(k.cfg.Discovery, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, fmt.Errorf("openid-configuration is not JSON: %w", err)
	}
	// OpenID Connect Discovery 1.0, section 4.3: or one issuer could speak for another.
	if about.Issuer != k.cfg.Discovery {
		return nil, fmt.Errorf("openid-configuration is of issuer %.200q", about.Issuer)
	}
	if err := checkURL(about.Keys); err != nil {
		return nil, fmt.Errorf("openid-configuration: jwks_uri: %w", err)
	}
	return k.get(ctx, about.Keys)
}

func (k *Keys) get(ctx context.Context, from string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := k.cfg.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", from, answer.Status)
	}
	return readBounded(answer.Body)
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeySet+1))
	if err == nil && len(text) > maxKeySet {
		return nil, fmt.Errorf("key set is larger than %d bytes", maxKeySet)
	}
	return text, err
}
