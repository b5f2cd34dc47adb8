package debug

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/obs"
)

// Types that istioctl requests on an ADS stream (istio pilot/pkg/xds/debuggen.go, statusgen.go): a type for any page of
// /debug, and two types with messages of their own.
const (
	debugURL      = "istio.io/debug"
	syncURL       = debugURL + "/syncz"
	configDumpURL = debugURL + "/config_dump"
)

// Answers returns the handlers of the three types that istioctl requests on a stream. The type istio.io/debug is for a
// page, which the request names. The two other types are for the synchronisation of proxies, and for the configuration
// of one proxy. Errors of a handler are gRPC statuses, except if the synchronisation cannot be encoded.
func (p *Pages) Answers() []serve.Answer {
	of := func(url string, make func(context.Context, authz.Caller, []string) ([]*discoveryv3.Resource, error)) serve.Answer {
		answer := func(ctx context.Context, c serve.Client, names []string) ([]*discoveryv3.Resource, error) {
			who, err := p.Rules.Stream(c.Caller)
			if err != nil {
				return nil, err
			}
			return make(ctx, who, names)
		}
		return serve.Answer{TypeURL: url, Resources: answer}
	}
	// The caller's turn (its permission to let this process make an answer) ends when the answer has been made, because
	// the stream limits the unread answers (budget.Limits.Asks).
	paced := func(url string, costly bool, make func(authz.Caller, []string) ([]*discoveryv3.Resource, error)) serve.Answer {
		return of(url, func(ctx context.Context, who authz.Caller, names []string) ([]*discoveryv3.Resource, error) {
			_, done, err := p.Turn(ctx, who, costly)
			if err != nil {
				return nil, status.Error(codes.ResourceExhausted, err.Error())
			}
			defer done()
			return make(who, names)
		})
	}
	return []serve.Answer{
		of(debugURL, p.page), // waits for its turn as pages do
		paced(syncURL, false, func(who authz.Caller, _ []string) ([]*discoveryv3.Resource, error) {
			return inspect.Status(p.shown(who))
		}),
		paced(configDumpURL, true, func(who authz.Caller, names []string) ([]*discoveryv3.Resource, error) {
			if len(names) != 1 {
				return nil, status.Error(codes.InvalidArgument, "the request must name exactly one proxy, as name.namespace")
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

// page returns the page of /debug with a name such as "config_dump?proxyID=a.b". As with istiod, a page with an error
// message about a wrong request is an answer, not an error.
func (p *Pages) page(ctx context.Context, who authz.Caller, names []string) ([]*discoveryv3.Resource, error) {
	if len(names) != 1 {
		return nil, status.Error(codes.InvalidArgument, "the request must name exactly one page of /debug")
	}
	at, err := url.Parse("/debug/" + names[0])
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%q: %v", names[0], err)
	}
	if who.Sees != nil && !authz.TenantMaySee(at.Path) {
		return nil, status.Error(codes.PermissionDenied, authz.ForSystem)
	}
	answer := p.render(ctx, who, at)
	dump := at.Path == "/debug/config_dump"
	switch {
	case dump && answer.Code == http.StatusBadRequest && at.Query().Get("proxyID") == "":
		fmt.Fprintln(&answer.Body, needsProxy)
	case dump && answer.Code == http.StatusNotFound:
		fmt.Fprintln(&answer.Body, notConnected)
	case answer.Code >= http.StatusMultipleChoices && answer.Code < http.StatusBadRequest: // a path that is not clean
		return asPage(names[0], []byte(noPage)), nil
	case answer.Code >= http.StatusInternalServerError:
		return nil, status.Error(codes.Internal, strings.TrimSpace(answer.Body.String()))
	}
	return asPage(names[0], answer.Body.Bytes()), nil
}

// Texts that istioctl recognises in a negative answer (istio istioctl/pkg/multixds/gather.go,
// istioctl/pkg/internaldebug/internal-debug.go). When istioctl receives notConnected, it queries the next replica. It
// prints the other two texts. An error instead of notConnected would end istioctl's search.
const (
	notConnected = "Proxy not connected to this Pilot instance. It may be connected to another instance."
	needsProxy   = "You must provide a proxyID in the query string"
	noPage       = "404 page not found\n" // as in net/http
)

// render makes a page for a caller, after waiting for the caller's turn.
func (p *Pages) render(ctx context.Context, who authz.Caller, at *url.URL) *web.Recorder {
	answer := web.NewRecorder()
	p.debug(who).ServeHTTP(answer, (&http.Request{Method: http.MethodGet, URL: at, Header: http.Header{}}).WithContext(ctx))
	return answer
}

// Render makes the page at a path, such as /debug/problems, and returns its HTTP status and content. It waits for the
// caller's turn. It does not check whether the caller may request the page (authz.TenantMaySee).
func (p *Pages) Render(ctx context.Context, who authz.Caller, path string, q url.Values) (code int, body []byte) {
	answer := p.render(ctx, who, &url.URL{Path: path, RawQuery: q.Encode()})
	return answer.Code, answer.Body.Bytes()
}

// asPage returns an answer with the text of a page.
func asPage(name string, body []byte) []*discoveryv3.Resource {
	return []*discoveryv3.Resource{{Name: name, Resource: &anypb.Any{TypeUrl: debugURL, Value: body}}}
}

// Identifier returns the JSON text that istioctl reads as the control plane's identifier (IstioControlPlaneInstance).
// The argument id is the name of the process.
func Identifier(id string) string {
	info := map[string]string{"version": obs.Version}
	raw, err := json.Marshal(map[string]any{"Component": "istiod", "ID": id, "Info": info})
	if err != nil {
		panic(err) // texts always encode
	}
	return string(raw)
}
