package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// hub serves the newest secrets by SDS. Envoy opens a stream for each name.
type hub struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	log          *slog.Logger
	acknowledged func(roots []string) // called with the roots that Envoy has acknowledged
	files        *files

	mu      sync.Mutex // guards the fields below; no other lock is taken while it is held
	secrets map[string]*secret
	changed chan struct{} // closed when the secrets are replaced
}

func newHub(log *slog.Logger, acknowledged func([]string)) *hub {
	h := &hub{log: log, acknowledged: acknowledged, secrets: map[string]*secret{}, changed: make(chan struct{})}
	h.files = &files{log: log, set: h.set, drop: h.drop, wanted: map[string]*fileSecret{}, owned: map[string]int{}}
	return h
}

// set publishes secrets in one step.
func (h *hub) set(secrets ...*secret) {
	h.edit(func(next map[string]*secret) {
		for _, s := range secrets {
			next[s.name] = s
		}
	})
}

// drop removes a secret that no stream wants.
func (h *hub) drop(name string) {
	h.edit(func(next map[string]*secret) { delete(next, name) })
}

func (h *hub) edit(change func(next map[string]*secret)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := maps.Clone(h.secrets)
	change(next)
	h.secrets = next
	close(h.changed)
	h.changed = make(chan struct{})
}

// get returns the newest secrets, which must not be modified, and a channel that is closed when newer ones exist.
func (h *hub) get() (map[string]*secret, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets, h.changed
}

func (h *hub) serve(ctx context.Context, l net.Listener) error {
	// Envoy pings every ten seconds (navarch-agent's bootstrap). By default gRPC ends the connection after a few such
	// pings (GOAWAY, too_many_pings).
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	secretv3.RegisterSecretDiscoveryServiceServer(server, h)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// DeltaSecrets implements envoy.service.secret.v3.SecretDiscoveryService for DELTA_GRPC. It returns nil when the client
// closes its side of the stream. In all other cases it returns the error of the stream or of its context. A requested
// name without a secret has no response until the secret exists. A file secret that would exceed a bound (files.want)
// has no response.
func (h *hub) DeltaSecrets(stream grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	return run(h, stream.Context(), stream.Recv, func(c *client, r *discoveryv3.DeltaDiscoveryRequest) {
		c.answered(r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
		for _, name := range r.GetResourceNamesSubscribe() {
			c.subscribe(name, r.GetInitialResourceVersions()[name])
		}
		for _, name := range r.GetResourceNamesUnsubscribe() {
			c.unsubscribe(name)
		}
	}, func(nonce string, due []*secret) error {
		resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: secretType, Nonce: nonce}
		for _, s := range due {
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: s.name, Version: s.version, Resource: s.body})
		}
		return stream.Send(resp)
	})
}

// StreamSecrets does the same as DeltaSecrets for GRPC, the state-of-the-world variant of SDS. Each response contains
// all requested secrets that exist. A request with an outdated nonce changes nothing.
func (h *hub) StreamSecrets(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	return run(h, stream.Context(), stream.Recv, func(c *client, r *discoveryv3.DiscoveryRequest) {
		c.answered(r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
		if r.GetResponseNonce() != "" && r.GetResponseNonce() != c.lastNonce() {
			return // outdated: a newer response is on its way
		}
		c.whole = true
		for name := range c.wants {
			if !slices.Contains(r.GetResourceNames(), name) {
				c.unsubscribe(name)
			}
		}
		for _, name := range r.GetResourceNames() {
			if _, have := c.wants[name]; !have {
				c.subscribe(name, "")
			}
		}
	}, func(nonce string, due []*secret) error {
		return stream.Send(whole(nonce, due))
	})
}

func whole(nonce string, due []*secret) *discoveryv3.DiscoveryResponse {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: secretType, Nonce: nonce}
	for _, s := range due {
		resp.Resources = append(resp.Resources, s.body)
		resp.VersionInfo += s.version
	}
	return resp
}

// FetchSecrets returns the named secrets in the order of the names. Without names the response is empty. Secrets from
// files exist only while a stream requests them. The error is gRPC Unavailable if a name has no secret at present.
func (h *hub) FetchSecrets(_ context.Context, r *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	secrets, _ := h.get()
	var due []*secret
	for _, name := range r.GetResourceNames() {
		if secrets[name] == nil {
			return nil, status.Errorf(codes.Unavailable, "secret %q is not served, or not yet; %q and %q are", name, certificateName, trustName)
		}
		due = append(due, secrets[name])
	}
	return whole("", due), nil
}

// run serves one stream until the stream ends. The function apply applies a request to the client's state. The function
// respond sends a response.
func run[R any](h *hub, ctx context.Context, recv func() (*R, error),
	apply func(*client, *R), respond func(nonce string, due []*secret) error) error {
	requests, ended := make(chan *R), make(chan error, 1)
	go func() {
		for {
			r, err := recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	c := &client{log: h.log, acknowledged: h.acknowledged, files: h.files, wants: map[string]string{}, resumed: map[string]bool{}}
	defer c.end()
	for {
		secrets, changed := h.get()
		if due := c.due(secrets); len(due) > 0 {
			if err := respond(c.send(due), due); err != nil {
				return err
			}
		}
		select {
		case r := <-requests: // not retained, because each request may repeat 61 KB of node metadata
			apply(c, r)
		case <-changed:
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// client is the state of one stream. It does not contain the stream itself.
type client struct {
	log          *slog.Logger
	acknowledged func(roots []string)
	files        *files
	whole        bool              // the stream is state of the world: a response has all wanted secrets
	wants        map[string]string // name -> version sent, or version that Envoy claims to hold; "": no version
	resumed      map[string]bool   // names whose version in wants Envoy claims to hold from an earlier stream
	nonce        uint64            // nonce of the last response; 0: no response was sent yet
	flight       []*secret         // secrets of the response that Envoy has not answered yet; nil: there is no such response
}

func (c *client) lastNonce() string { return strconv.FormatUint(c.nonce, 10) }

// subscribe adds a wanted name. The parameter version is the secret's version that Envoy claims to hold, or empty.
func (c *client) subscribe(name, version string) {
	_, wanted := c.wants[name]
	switch {
	case isFileName(name):
		if !wanted && !c.files.want(name) {
			return
		}
	case name != certificateName && name != trustName:
		c.log.Warn("Envoy requested a secret that this agent does not have; there is no response", "name", name)
	}
	c.wants[name], c.resumed[name] = version, version != ""
}

// unsubscribe removes a wanted name.
func (c *client) unsubscribe(name string) {
	if _, wanted := c.wants[name]; !wanted {
		return
	}
	delete(c.wants, name)
	if isFileName(name) {
		c.files.release(name)
	}
}

// end unsubscribes all names when the stream ends.
func (c *client) end() {
	for name := range c.wants {
		c.unsubscribe(name)
	}
}

// due returns the secrets to send, sorted by name. While Envoy has not answered a response, the result is nil. Roots
// that Envoy holds from an earlier stream count as acknowledged.
func (c *client) due(secrets map[string]*secret) []*secret {
	if c.flight != nil {
		return nil
	}
	var out, all []*secret
	for _, name := range slices.Sorted(maps.Keys(c.wants)) {
		if s := secrets[name]; s != nil {
			all = append(all, s)
			if c.wants[name] != s.version {
				out = append(out, s)
			} else if c.resumed[name] && s.roots != nil {
				c.acknowledged(s.roots)
			}
			delete(c.resumed, name)
		}
	}
	if c.whole && len(out) > 0 {
		return all
	}
	return out
}

func (c *client) send(due []*secret) (nonce string) {
	c.nonce++
	c.flight = due
	for _, s := range due {
		c.wants[s.name] = s.version
	}
	return c.lastNonce()
}

// answered handles an ACK, or a NACK with its message. After a NACK, Envoy gets no further response until a wanted
// secret changes.
func (c *client) answered(nonce, refusal string) {
	if c.flight == nil || nonce != c.lastNonce() {
		return
	}
	for _, s := range c.flight {
		switch {
		case refusal != "":
			c.log.Error("Envoy refused a secret and keeps its previous version", "name", s.name, "version", s.version, "error", refusal)
		case s.roots != nil:
			c.acknowledged(s.roots)
		}
	}
	c.flight = nil
}
