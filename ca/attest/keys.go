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

// maxKeySet bounds a response of a key endpoint, in bytes.
const maxKeySet = 1 << 20

// maxWaiting is the largest number of tokens of one issuer that wait for a fetch because their key is unknown. The
// bound is needed because a client can invent key ids. It is below the number of tokens that a server checks at once.
// So tokens with known keys are verified even while other tokens wait.
const maxWaiting = 2

// KeysConfig configures the source of an issuer's public keys. Exactly one of Discovery, URL, File and Ask must be set.
type KeysConfig struct {
	Discovery string // an OpenID issuer; its document /.well-known/openid-configuration names the URL of the keys
	URL       string // URL of a JWKS
	File      string // path of a JWKS, or of public keys as PEM
	// Ask fetches a JWKS with the name of its issuer (Keys.Issuer). A fetch fails if the name is empty or has more than
	// 1024 bytes. The field Whose is the name of Ask's source, for messages and for Memory.
	Ask   func(context.Context) (issuer string, jwks []byte, err error)
	Whose string
	// Memory is the path of a file that keeps the last good result of Ask for the next start. If Memory is empty, there
	// is no such file. A file that is broken, or was saved with a different value of Whose, is ignored with a warning.
	Memory string
	// Before provides the keys until the first successful fetch; NewKeys copies them. If Before is nil or has no
	// keys, Memory provides them.
	Before *Keys
	// Client fetches from Discovery or URL. It must trust the endpoint's CA, and send the bearer token that the
	// endpoint needs. If Client is nil, a client with the system's CAs and without a token is used. That client refuses
	// redirections to plain http (except on loopback hosts), and the fifth redirection.
	Client      *http.Client
	Refresh     time.Duration    // pause of Run after a success, without its random part; 0: 5 min (File: 30 s)
	MinInterval time.Duration    // shortest interval between refreshes for unknown keys; 0: 10 s
	Timeout     time.Duration    // timeout of one refresh; 0: 10 s
	Log         *slog.Logger     // nil: nothing is logged
	Now         func() time.Time // nil: time.Now
}

// Keys are an issuer's public keys. Run fetches them periodically. The last good keys stay in use while the source is
// down. A token with an unknown key causes an additional fetch, at most one in KeysConfig.MinInterval. Keys is safe for
// concurrent use.
type Keys struct {
	cfg     KeysConfig
	source  string
	load    func(context.Context) (issuer string, keys []byte, err error)
	set     atomic.Pointer[keySet]
	fetched atomic.Pointer[time.Time]
	waiting atomic.Int32 // number of tokens that wait for a fetch

	saving  sync.Mutex // held while KeysConfig.Memory is written
	unsaved bool       // EndSaving was called

	mu       sync.Mutex // guards the fields below; not held during a fetch
	flight   *flight
	demanded time.Time // start of the last refresh for an unknown key
	failed   error     // error of the last completed refresh; nil: it succeeded
}

// flight is a fetch under way. singleflight.Group cannot be used, because only the start of a fetch counts for
// MinInterval, and joining a fetch does not.
type flight struct {
	done chan struct{}
	err  error // read after done is closed
}

// NewKeys validates the configuration, and loads the keys of Before or Memory. It fetches nothing. Without Run, only
// Refresh and tokens with an unknown key cause a fetch. NewKeys fails if not exactly one source is given. It also fails
// if Discovery or URL is invalid, contains a user, or is not https. For loopback hosts, http is allowed too.
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
		return nil, errors.New("token keys: exactly one of Discovery, URL, File and Ask must be set")
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
	k.cfg.Before = nil // its keys were copied
	return k, nil
}

// nameless adapts a source that does not return the issuer's name.
func nameless(load func(context.Context) ([]byte, error)) func(context.Context) (string, []byte, error) {
	return func(ctx context.Context) (string, []byte, error) {
		text, err := load(ctx)
		return "", text, err
	}
}

// StaticKeys returns constant keys from a JWKS or from public keys in PEM. Keys of unsupported kinds are left out.
// Errors: the text is neither JWKS nor PEM, or no key is left.
func StaticKeys(text []byte) (*Keys, error) {
	set, _, err := parseKeys(text)
	if err != nil {
		return nil, err
	}
	k := &Keys{source: "static keys"}
	k.set.Store(set)
	return k, nil
}

// checkURL requires https, because an attacker who changes keys in transit can obtain any identity of the mesh.
// Loopback hosts are exempt.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return errors.New("the JWKS URL does not parse") // the error may quote a password
	}
	if u.Host == "" || u.User != nil {
		return fmt.Errorf("%q is not a JWKS URL: want a host, and no user", u.Redacted())
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	if u.Scheme != "https" && !(u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback())) {
		return fmt.Errorf("%q must be https", s)
	}
	return nil
}

// checkRedirect refuses redirections to URLs that checkURL refuses, and the fifth redirection.
func checkRedirect(r *http.Request, before []*http.Request) error {
	if len(before) >= 5 {
		return errors.New("more than 4 redirections")
	}
	return checkURL(r.URL.String())
}

// Run refreshes the keys until ctx ends, and then returns the error of ctx. After a failure it retries after one
// second. The pause doubles with each further failure, up to KeysConfig.Refresh. Each pause is longer by a random part
// of up to 10 %. Run logs the first failure and the first success after failures. For static keys it only waits for
// ctx.
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
		wait += time.Duration(rand.Int64N(int64(wait)/10 + 1)) // spread, so that replicas do not fetch at the same time
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Refresh fetches the keys, or joins a fetch under way, and waits for its end. If ctx ends, the fetch continues without
// the caller. Errors: the source fails or times out, its keys are invalid or have no valid issuer name, or ctx ends.
// After a failed fetch the previous keys stay. For static keys Refresh returns nil at once.
func (k *Keys) Refresh(ctx context.Context) error {
	return wait(ctx, k.start(true))
}

// Loaded reports whether there are keys. Without keys, tokens cannot be verified.
func (k *Keys) Loaded() bool { return k.set.Load() != nil }

// find returns the keys with an id, at least one. For an unknown id it waits for one fetch, unless MinInterval
// forbids a fetch at this time. Errors match ErrUnknownKey or ErrUnavailable.
func (k *Keys) find(ctx context.Context, id string) ([]publicKey, error) {
	if found := k.set.Load().find(id); len(found) != 0 {
		return found, nil
	}
	if id == "" && k.Loaded() {
		return nil, fmt.Errorf("%w: the token names no key, and its issuer has several", ErrUnknownKey)
	}
	if f := k.start(false); f != nil {
		if k.Loaded() { // leave room for tokens with known keys
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
		// failed is not wrapped, because a timeout of the fetch is not the caller's timeout.
		return nil, fmt.Errorf("%w: key %.80q is not known, and the issuer's keys cannot be fetched: %v", ErrUnavailable, id, failed)
	}
	return nil, fmt.Errorf("%w: %.80q is not among the issuer's keys", ErrUnknownKey, id)
}

// start starts a refresh, or returns the refresh under way. The result is nil if the keys are static. If scheduled is
// false, the result is also nil within MinInterval after the last unscheduled refresh began.
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
		// The fetch has its own context, because one waiting caller may give up while others still wait.
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

// Fetched returns the time of the last successful fetch by k. It is zero if no fetch has succeeded, or if the keys are
// static. Keys of Before or Memory do not count.
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
	// OpenID Connect Discovery 1.0, section 4.3, requires this check. Without the check, one issuer could state the
	// keys of another.
	if about.Issuer != k.cfg.Discovery {
		return nil, fmt.Errorf("openid-configuration names issuer %.200q", about.Issuer)
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
