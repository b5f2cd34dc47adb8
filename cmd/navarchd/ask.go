package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	"navarch.io/navarch/push/join"
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
func (d *authorizer) seen(identity, trustDomain string) (visibleTenants, error) {
	if d.open {
		return nil, nil
	}
	if identity == "" {
		return nil, status.Error(codes.Unauthenticated, "authentication required: ask over TLS, with a certificate or a token")
	}
	who, err := join.Verified(identity, trustDomain)
	if err != nil {
		return nil, status.Errorf(codes.PermissionDenied, "%s: %v", identity, err)
	}
	if id, err := spiffeid.FromString(identity); err != nil || d.revoked != nil && d.revoked(id) {
		return nil, status.Errorf(codes.PermissionDenied, "%s is revoked", identity)
	}
	if who.Namespace == d.system {
		return nil, nil
	}
	return d.within(who.Namespace), nil
}

// answers are the types that istioctl asks for.
func (p *process) answers() []serve.Answer {
	d := p.authorizer()
	of := func(url string, make func(context.Context, caller, []string) ([]*discoveryv3.Resource, error)) serve.Answer {
		answer := func(ctx context.Context, c serve.Client, names []string) ([]*discoveryv3.Resource, error) {
			sees, err := d.seen(c.Identity, p.config.trustDomain)
			if err != nil {
				return nil, err
			}
			return make(ctx, caller{name: c.Identity, sees: sees}, names)
		}
		return serve.Answer{TypeURL: url, Resources: answer}
	}
	return []serve.Answer{
		of(debugURL, p.page),
		of(syncURL, func(_ context.Context, who caller, _ []string) ([]*discoveryv3.Resource, error) {
			return inspect.Status(p.shown(who))
		}),
		of(configDumpURL, func(_ context.Context, who caller, names []string) ([]*discoveryv3.Resource, error) {
			if len(names) != 1 {
				return nil, status.Error(codes.InvalidArgument, "exactly one proxy is to be named: name.namespace")
			}
			all, err := inspect.Dump(p.shown(who), names[0])
			switch {
			case err == nil:
				return all, nil
			case inspect.StatusCode(err) == http.StatusNotFound:
				return asPage(names[0], []byte(err.Error()+"\n"+notConnected)), nil
			}
			return nil, status.Error(codes.Internal, err.Error())
		}),
	}
}

// page is the page of /debug that a name stands for, "config_dump?proxyID=a.b", as it is; one that says that the request is
// wrong is a page too, as with istiod.
func (p *process) page(ctx context.Context, who caller, names []string) ([]*discoveryv3.Resource, error) {
	if len(names) != 1 {
		return nil, status.Error(codes.InvalidArgument, "exactly one page of /debug is to be named")
	}
	at, err := url.Parse("/debug/" + names[0])
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%q: %v", names[0], err)
	}
	if who.sees != nil && !slices.Contains(tenantPages, at.Path) {
		return nil, status.Error(codes.PermissionDenied, forSystem)
	}
	answer := &recorder{header: http.Header{}, code: http.StatusOK}
	p.debug(who).ServeHTTP(answer, (&http.Request{Method: http.MethodGet, URL: at, Header: http.Header{}}).WithContext(ctx))
	dump := at.Path == "/debug/config_dump"
	switch {
	case dump && answer.code == http.StatusBadRequest && at.Query().Get("proxyID") == "":
		fmt.Fprintln(&answer.body, needsProxy)
	case dump && answer.code == http.StatusNotFound:
		fmt.Fprintln(&answer.body, notConnected)
	case answer.code >= http.StatusMultipleChoices && answer.code < http.StatusBadRequest: // a path that is not clean
		return asPage(names[0], []byte(noPage)), nil
	case answer.code >= http.StatusInternalServerError:
		return nil, status.Error(codes.Internal, strings.TrimSpace(answer.body.String()))
	}
	return asPage(names[0], answer.body.Bytes()), nil
}

// What istioctl looks for in an answer that is not what was asked for (istio istioctl/pkg/multixds/gather.go,
// istioctl/pkg/internaldebug/internal-debug.go): by the first it asks the next replica, by the others it says what is wrong.
// An error would end its search at the first replica that does not have the proxy.
const (
	notConnected = "Proxy not connected to this Pilot instance. It may be connected to another instance."
	needsProxy   = "You must provide a proxyID in the query string"
	noPage       = "404 page not found\n" // as net/http has it
)

// asPage is an answer that is the text of a page.
func asPage(name string, body []byte) []*discoveryv3.Resource {
	return []*discoveryv3.Resource{{Name: name, Resource: &anypb.Any{TypeUrl: debugURL, Value: body}}}
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
