package status

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	maxAnswer      = 10 << 10 // bytes of an application's response, as in the kubelet
	defaultTimeout = time.Second
	maxTimeout     = maxBudget // a minute; the server allows 5 s more for a response (limits)
)

// Probes contains the probes of the application by the path that the kubelet requests from the agent. The paths are
// /app-health/CONTAINER/NAME (NAME is livez, readyz or startupz) and /app-lifecycle/CONTAINER/NAME (NAME is prestopz or
// poststartz).
type Probes map[string]Probe

// Probe is a probe or lifecycle hook of the application. In the Pod, sidecar injection has replaced the original probe
// by a request to the agent. On this request the agent carries out the original probe. Exactly one of HTTP, TCP and
// GRPC is set.
type Probe struct {
	HTTP           *HTTPProbe `json:"httpGet"`
	TCP            *TCPProbe  `json:"tcpSocket"`
	GRPC           *GRPCProbe `json:"grpc"`
	TimeoutSeconds int32      `json:"timeoutSeconds"` // 0 or negative: 1 s; above 60: 60 s
}

// HTTPProbe sends a GET request to the Pod. The kubelet gets the application's status and the first 10 KiB of the body.
// Redirects are followed on the Pod's host only. For any other response with a status from 300 to 399, the kubelet gets
// status 200. If there is no complete response, or at the tenth redirect, the kubelet gets status 500. The host of the
// original probe is ignored.
type HTTPProbe struct {
	Path    string     `json:"path"` // with or without "/" at the beginning
	Port    port       `json:"port"`
	Scheme  string     `json:"scheme"` // HTTP or HTTPS, in any case; empty: HTTP; certificates are not verified, as in the kubelet
	Headers []struct { // added to the request; the header Host sets the request's host
		Name, Value string
	} `json:"httpHeaders"`
}

// TCPProbe opens a connection to a port of the Pod. The kubelet gets status 200 if that succeeds, and 500 if not.
type TCPProbe struct {
	Port port `json:"port"`
}

// GRPCProbe calls grpc.health.v1.Health on a port of the Pod. The kubelet gets status 200 if the result is SERVING, and
// 500 if not.
type GRPCProbe struct {
	Port    port   `json:"port"`
	Service string `json:"service"` // empty: the health of the whole gRPC server
}

// port is a port number from 1 to 65535. Injection has replaced named ports by numbers.
type port uint16

// UnmarshalJSON accepts a JSON number from 1 to 65535. All other values are errors.
func (p *port) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(string(b), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %s: want a number from 1 to 65535", b)
	}
	*p = port(n)
	return nil
}

// ParseProbes parses the variable ISTIO_KUBE_APP_PROBERS, which is a JSON object from path to probe. For a blank text
// and for null it returns nil, nil. ParseProbes returns an error for invalid JSON, an invalid port, or a path or probe
// that sidecar injection does not produce. The error for a path or probe names the first such path in sorted order.
func ParseProbes(text string) (Probes, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var all Probes
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if err := all[path].check(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
}

var endings = map[string][]string{"app-health": {"livez", "readyz", "startupz"}, "app-lifecycle": {"prestopz", "poststartz"}}

// check returns an error if sidecar injection does not produce such a path or probe.
func (p Probe) check(path string) error {
	part := strings.Split(path, "/")
	if len(part) != 4 || part[0] != "" || part[2] == "" || !slices.Contains(endings[part[1]], part[3]) {
		return errors.New("want /app-health/<container>/livez|readyz|startupz or /app-lifecycle/<container>/prestopz|poststartz")
	}
	kinds, at := 0, port(0)
	if p.HTTP != nil {
		kinds, at = kinds+1, p.HTTP.Port
		if s := p.HTTP.Scheme; s != "" && !strings.EqualFold(s, "http") && !strings.EqualFold(s, "https") {
			return fmt.Errorf("scheme %q is not HTTP or HTTPS", s)
		}
		if _, err := http.NewRequest(http.MethodGet, "http://localhost"+p.HTTP.path(), nil); err != nil {
			return err
		}
	}
	if p.TCP != nil {
		kinds, at = kinds+1, p.TCP.Port
	}
	if p.GRPC != nil {
		kinds, at = kinds+1, p.GRPC.Port
	}
	if kinds != 1 {
		return fmt.Errorf("%d of httpGet, tcpSocket and grpc, want one", kinds)
	}
	if at == 0 {
		return errors.New("no port")
	}
	return nil
}

func (h *HTTPProbe) path() string { return "/" + strings.TrimPrefix(h.Path, "/") }

// timeout returns the probe's time limit: one second by default, maxTimeout at most.
func (p Probe) timeout() time.Duration {
	if p.TimeoutSeconds <= 0 {
		return defaultTimeout
	}
	return min(time.Duration(p.TimeoutSeconds)*time.Second, maxTimeout)
}

// prober sends probes to the application.
type prober struct {
	host   string
	dialer *net.Dialer
	client *http.Client
}

func newProber(host string) *prober {
	// Redirection exempts connections from these source addresses, so the probe reaches the application and not Envoy.
	source := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		source = &net.TCPAddr{IP: net.ParseIP("::6")}
	}
	p := &prober{host: host, dialer: &net.Dialer{LocalAddr: source}}
	p.client = &http.Client{
		Transport: &http.Transport{
			DialContext: p.dial, DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as the kubelet
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() { // not followed, but counts as a success, as in the kubelet
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("10 redirects")
			}
			return nil
		},
	}
	return p
}

// dial connects from the source address that newProber has chosen. If the machine does not have that address, dial
// connects from any address. The address ::6 exists only if redirection has added it.
func (p *prober) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := p.dialer.DialContext(ctx, network, address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return c, err
}

// probe runs the probe in Config.Probes for the request's path. If there is no such probe, it answers 404.
func (s *Server) probe(w http.ResponseWriter, r *http.Request) {
	probe, ok := s.cfg.Probes[r.URL.Path]
	if !ok {
		http.Error(w, "no probe is listed for this path", http.StatusNotFound)
		return
	}
	ctx, done, ok := s.probes.take(w, r)
	defer done()
	if !ok {
		http.Error(w, "too many probes at once", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probe.timeout())
	defer cancel()
	code, body, err := s.prober.ask(ctx, probe, r)
	if err != nil {
		s.cfg.Log.Debug("the application is not healthy", "probe", r.URL.Path, "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// ask carries out a probe and returns the status and body for the kubelet. The parameter incoming is the kubelet's
// request. A complete HTTP response with any status is a result, not an error. Every other failure of a probe is an
// error.
func (p *prober) ask(ctx context.Context, probe Probe, incoming *http.Request) (code int, body []byte, err error) {
	switch {
	case probe.HTTP != nil:
		return p.http(ctx, probe.HTTP, incoming)
	case probe.TCP != nil:
		c, err := p.dial(ctx, "tcp", p.address(probe.TCP.Port))
		if err == nil {
			err = c.Close()
		}
		return http.StatusOK, nil, err
	default:
		return http.StatusOK, nil, p.grpc(ctx, probe.GRPC, kubelet(incoming))
	}
}

// kubelet returns the request's User-Agent if a kubelet sent the request, and "kube-probe" if not.
func kubelet(from *http.Request) string {
	for _, prefix := range []string{"kube-probe/", "kube-lifecycle/"} {
		if agent := from.UserAgent(); strings.HasPrefix(agent, prefix) {
			return agent
		}
	}
	return "kube-probe"
}

func (p *prober) address(at port) string { return net.JoinHostPort(p.host, strconv.Itoa(int(at))) }

// http carries out an HTTP probe. It sends the headers that the probe lists and those that the kubelet adds. Other
// headers of the incoming request are not passed on, because any client may reach the agent's port.
func (p *prober) http(ctx context.Context, h *HTTPProbe, from *http.Request) (int, []byte, error) {
	scheme := "http"
	if strings.EqualFold(h.Scheme, "https") {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+p.address(h.Port)+h.path(), nil)
	if err != nil {
		return 0, nil, err
	}
	for _, v := range h.Headers {
		if strings.EqualFold(v.Name, "Host") {
			req.Host = v.Value
			continue
		}
		req.Header.Add(v.Name, v.Value)
	}
	// The kubelet (kubernetes, pkg/probe/http) sets these headers unless the probe lists them. An empty Accept removes
	// the header.
	if _, listed := req.Header["User-Agent"]; !listed {
		req.Header.Set("User-Agent", kubelet(from))
	}
	if accept, listed := req.Header["Accept"]; !listed {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept")
	}
	if req.Host == p.address(h.Port) { // the probe sets no Host, so the kubelet would send the address of the Pod
		if local, is := from.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); is {
			req.Host = net.JoinHostPort(local.IP.String(), strconv.Itoa(int(h.Port)))
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return http.StatusOK, nil, nil
	}
	var body bytes.Buffer
	_, err = io.Copy(&body, io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, body.Bytes(), err
}

// grpc runs a gRPC health check. Errors: no answer, or a status other than SERVING.
func (p *prober) grpc(ctx context.Context, g *GRPCProbe, userAgent string) error {
	conn, err := grpc.NewClient("passthrough:///"+p.address(g.Port),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent(userAgent),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return p.dial(ctx, "tcp", address) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: g.Service})
	if err != nil {
		return err
	}
	if resp.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service reports %s", resp.GetStatus())
	}
	return nil
}
