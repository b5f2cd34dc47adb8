package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/obs"
)

// What istioctl asks on an ADS stream (istio pilot/pkg/xds/debuggen.go, statusgen.go): a page of /debug by its name, and the
// two that have messages of their own.
const (
	debugURL      = "istio.io/debug"
	syncURL       = debugURL + "/syncz"
	configDumpURL = debugURL + "/config_dump"
)

// seen is which namespaces a stream's caller sees, by the same rules as /debug; an identity is needed, as istiod wants it: a
// sidecar in front of this replica would make every plain-text caller one of this machine. Errors are gRPC statuses.
func (d *door) seen(identity, trustDomain string) (sight, error) {
	if d.open {
		return nil, nil
	}
	if identity == "" {
		return nil, status.Error(codes.Unauthenticated, "authentication required: ask over TLS, with a certificate or a token")
	}
	namespace, err := verified(identity, trustDomain)
	if err != nil {
		return nil, status.Errorf(codes.PermissionDenied, "%s: %v", identity, err)
	}
	if id, err := spiffeid.FromString(identity); err != nil || d.revoked != nil && d.revoked(id) {
		return nil, status.Errorf(codes.PermissionDenied, "%s is revoked", identity)
	}
	if namespace == d.system {
		return nil, nil
	}
	return d.within(namespace), nil
}

// answers are the types that istioctl asks for.
func (p *process) answers() []serve.Answer {
	d := p.door()
	of := func(url string, make func(sight, []string) ([]*discoveryv3.Resource, error)) serve.Answer {
		answer := func(_ context.Context, c serve.Client, names []string) ([]*discoveryv3.Resource, error) {
			sees, err := d.seen(c.Identity, p.config.trustDomain)
			if err != nil {
				return nil, err
			}
			return make(sees, names)
		}
		return serve.Answer{TypeURL: url, Resources: answer}
	}
	return []serve.Answer{
		of(debugURL, p.page),
		of(syncURL, func(sees sight, _ []string) ([]*discoveryv3.Resource, error) { return inspect.Status(p.shown(sees)) }),
		of(configDumpURL, func(sees sight, names []string) ([]*discoveryv3.Resource, error) {
			if len(names) != 1 {
				return nil, status.Error(codes.InvalidArgument, "exactly one proxy is to be named: name.namespace")
			}
			all, err := inspect.Dump(p.shown(sees), names[0])
			if err != nil {
				err = statusOf(inspect.StatusCode(err), err.Error())
			}
			return all, err
		}),
	}
}

// page is the page of /debug that a name stands for, "config_dump?proxyID=a.b", as it is.
func (p *process) page(sees sight, names []string) ([]*discoveryv3.Resource, error) {
	if len(names) != 1 {
		return nil, status.Error(codes.InvalidArgument, "exactly one page of /debug is to be named")
	}
	at, err := url.Parse("/debug/" + names[0])
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%q: %v", names[0], err)
	}
	if sees != nil && !slices.Contains(tenantPages, at.Path) {
		return nil, status.Error(codes.PermissionDenied, forSystem)
	}
	answer := &recorder{header: http.Header{}, code: http.StatusOK}
	p.debug(sees).ServeHTTP(answer, &http.Request{Method: http.MethodGet, URL: at, Header: http.Header{}})
	if answer.code != http.StatusOK {
		return nil, statusOf(answer.code, answer.body.String())
	}
	return []*discoveryv3.Resource{{Name: names[0], Resource: &anypb.Any{TypeUrl: debugURL, Value: answer.body.Bytes()}}}, nil
}

// statusOf is a page's error as a gRPC status.
func statusOf(page int, text string) error {
	code := codes.NotFound // moved, as a path that is not clean is, means that there is no such page
	switch page {
	case http.StatusBadRequest:
		code = codes.InvalidArgument
	case http.StatusServiceUnavailable:
		code = codes.Unavailable
	case http.StatusInternalServerError:
		code = codes.Internal
	}
	return status.Error(code, strings.TrimSpace(text))
}

// recorder keeps a page that is not for a browser.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// identifier is what istioctl reads of who answered (IstioControlPlaneInstance).
func (c *config) identifier() string {
	info := map[string]string{"version": obs.Version}
	raw, err := json.Marshal(map[string]any{"Component": "istiod", "ID": c.processName(), "Info": info})
	if err != nil {
		panic(err) // texts marshal
	}
	return string(raw)
}
