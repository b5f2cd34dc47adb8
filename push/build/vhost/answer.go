package vhost

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// maxDirectResponse is the largest body of a direct response, in bytes. Package push/build/route raises Envoy's limit
// of 4096 bytes to this size.
const maxDirectResponse = 1 << 20

// operations are the effects of one Headers message.
type operations struct {
	request, response headerChange
	authority         string // new host of the request, for a rewrite; empty: the host stays
}

// headerChange contains the headers to add or overwrite, and the names of headers to remove.
type headerChange struct {
	add    []*corev3.HeaderValueOption
	remove []string
}

// headerOperations encodes a Headers message. Envoy can change the host only by a rewrite, so operations that add or
// set the host become operations.authority.
func headerOperations(in *networkingv1.Headers) operations {
	ops := operations{request: headerChanges(in.GetRequest()), response: headerChanges(in.GetResponse())}
	for _, values := range []map[string]string{in.GetRequest().GetAdd(), in.GetRequest().GetSet()} {
		for _, k := range slices.Sorted(maps.Keys(values)) {
			if values[k] != "" && (strings.EqualFold(k, "host") || strings.EqualFold(k, ":authority")) {
				ops.authority = values[k] // `set` comes second, so it overrides `add`
			}
		}
	}
	return ops
}

// headerChanges encodes the operations on the headers of requests or of responses: `set`, then `add`, each sorted by
// name. It leaves out the headers for which model.SetByEnvoy or model.ExceedsRetries returns true.
func headerChanges(in *networkingv1.Headers_HeaderOperations) headerChange {
	var out headerChange
	add := func(values map[string]string, how corev3.HeaderValueOption_HeaderAppendAction) {
		for _, k := range slices.Sorted(maps.Keys(values)) {
			if !model.SetByEnvoy(k) && !model.ExceedsRetries(k, values[k]) {
				out.add = append(out.add, &corev3.HeaderValueOption{
					Header: &corev3.HeaderValue{Key: k, Value: values[k]}, AppendAction: how,
				})
			}
		}
	}
	add(in.GetSet(), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	add(in.GetAdd(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	for _, k := range in.GetRemove() {
		if !model.SetByEnvoy(k) {
			out.remove = append(out.remove, k)
		}
	}
	return out
}

// validateFormats returns an error for the first header value that is not a valid format string of Envoy. A single
// invalid value, such as "50%", would make Envoy refuse the whole route configuration.
func validateFormats(r *routev3.Route) error {
	values := slices.Concat(r.RequestHeadersToAdd, r.ResponseHeadersToAdd)
	for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
		values = slices.Concat(values, c.RequestHeadersToAdd, c.ResponseHeadersToAdd)
	}
	for _, v := range values {
		if err := model.CheckHeaderFormat(v.GetHeader().GetValue()); err != nil {
			return problem.Atf("headers", "%s: %q: %w", v.Header.Key, v.Header.Value, err)
		}
	}
	return nil
}

// redirectCodes maps the HTTP status of a redirect to Envoy's code. 0 stands for a redirect that states no status.
var redirectCodes = map[uint32]routev3.RedirectAction_RedirectResponseCode{
	0:   routev3.RedirectAction_MOVED_PERMANENTLY,
	301: routev3.RedirectAction_MOVED_PERMANENTLY,
	302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT,
	308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

// redirect returns the redirect action of a route whose match is given. It leaves out a port that is the default of the
// scheme. For this purpose, a missing scheme counts as http. The error names the field that Envoy does not support.
func (d *routeBuilder) redirect(in *networkingv1.HTTPRedirect, match *routev3.RouteMatch) (*routev3.RedirectAction, error) {
	code, ok := redirectCodes[in.GetRedirectCode()]
	if !ok {
		return nil, problem.Atf("redirect.redirectCode", "%d: want 301, 302, 303, 307 or 308", in.GetRedirectCode())
	}
	out := &routev3.RedirectAction{HostRedirect: in.GetAuthority(), ResponseCode: code}
	out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: in.GetUri()} // empty: the same path
	if in.GetUri() == "" && in.GetPrefixRewrite() != "" {
		if _, ok := match.GetPathSpecifier().(*routev3.RouteMatch_Prefix); !ok {
			return nil, problem.Atf("redirect.prefixRewrite", "the match is not a prefix")
		}
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: in.GetPrefixRewrite()}
	}
	scheme := in.GetScheme()
	if scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: scheme}
	}
	switch p := in.GetRedirectPort().(type) {
	case *networkingv1.HTTPRedirect_Port:
		out.PortRedirect = p.Port
	case *networkingv1.HTTPRedirect_DerivePort:
		if p.DerivePort == networkingv1.HTTPRedirect_FROM_REQUEST_PORT {
			out.PortRedirect = d.Port
		}
	}
	if out.PortRedirect == 80 && (scheme == "" || scheme == "http") || out.PortRedirect == 443 && scheme == "https" {
		out.PortRedirect = 0
	}
	return out, nil
}

// directResponse returns the direct response of a route. It fails if the body has more than maxDirectResponse bytes.
func directResponse(in *networkingv1.HTTPDirectResponse) (*routev3.DirectResponseAction, error) {
	out := &routev3.DirectResponseAction{Status: in.GetStatus()}
	switch body := in.GetBody().GetSpecifier().(type) {
	case *networkingv1.HTTPBody_String_:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: body.String_}}
	case *networkingv1.HTTPBody_Bytes:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: body.Bytes}}
	}
	if n := max(len(out.Body.GetInlineString()), len(out.Body.GetInlineBytes())); n > maxDirectResponse {
		return nil, problem.Atf("directResponse.body", "%d bytes, at most %d", n, maxDirectResponse)
	}
	return out, nil
}

// faultConfig encodes the faults of a rule, or returns nil if the rule injects no fault. A fault without a percentage
// affects no request.
func faultConfig(in *networkingv1.HTTPFaultInjection) *faultv3.HTTPFault {
	out := &faultv3.HTTPFault{}
	if d := in.GetDelay(); duration(d.GetFixedDelay()) != nil {
		out.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: d.GetFixedDelay()},
			Percentage:         fraction(d.GetPercentage(), float64(d.GetPercent())), //nolint:staticcheck // still in use
		}
	}
	if a := in.GetAbort(); a != nil {
		abort := &faultv3.FaultAbort{Percentage: fraction(a.GetPercentage(), 0)}
		switch e := a.GetErrorType().(type) {
		case *networkingv1.HTTPFaultInjection_Abort_HttpStatus:
			abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: uint32(max(0, e.HttpStatus))}
			out.Abort = abort
		case *networkingv1.HTTPFaultInjection_Abort_GrpcStatus:
			var code codes.Code
			if code.UnmarshalJSON([]byte(strconv.Quote(e.GrpcStatus))) == nil {
				abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(code)}
				out.Abort = abort
			}
		}
	}
	if out.Delay == nil && out.Abort == nil {
		return nil
	}
	return out
}

// fraction encodes the percentage p with four decimal digits. If p is nil, it encodes the parameter fallback, rounded
// down to an integer. The result is limited to the range 0 to 100.
func fraction(p *networkingv1.Percent, fallback float64) *typev3.FractionalPercent {
	if p == nil {
		return &typev3.FractionalPercent{Numerator: uint32(min(max(fallback, 0), 100))}
	}
	v := p.GetValue()
	if !(v > 0) { // NaN too
		v = 0
	}
	return &typev3.FractionalPercent{
		Numerator: uint32(math.Round(min(v, 100) * 10000)), Denominator: typev3.FractionalPercent_MILLION,
	}
}

// corsConfig encodes a CORS policy. The error names the origin whose match is invalid, or a list that has control
// characters. Envoy returns the lists to clients unchanged, so such characters would add headers to the response.
func corsConfig(in *networkingv1.CorsPolicy) (*corsv3.CorsPolicy, error) {
	for _, of := range []struct {
		field  string
		values []string
	}{{"allowMethods", in.GetAllowMethods()}, {"allowHeaders", in.GetAllowHeaders()}, {"exposeHeaders", in.GetExposeHeaders()}} {
		for i, text := range of.values {
			if !model.FitsLine(text) {
				return nil, problem.Atf(fmt.Sprintf("%s[%d]", of.field, i), "%q has control characters", text)
			}
		}
	}
	out := &corsv3.CorsPolicy{
		AllowMethods:     strings.Join(in.GetAllowMethods(), ","),
		AllowHeaders:     strings.Join(in.GetAllowHeaders(), ","),
		ExposeHeaders:    strings.Join(in.GetExposeHeaders(), ","),
		AllowCredentials: in.GetAllowCredentials(),
		FilterEnabled: &corev3.RuntimeFractionalPercent{
			DefaultValue: &typev3.FractionalPercent{Numerator: 100},
		},
		// Preflights of origins that do not match are forwarded to the application unless the rule states IGNORE.
		ForwardNotMatchingPreflights: wrapperspb.Bool(in.GetUnmatchedPreflights() != networkingv1.CorsPolicy_IGNORE),
	}
	if in.GetMaxAge() != nil {
		out.MaxAge = strconv.FormatInt(in.GetMaxAge().GetSeconds(), 10)
	}
	for i, origin := range in.GetAllowOrigins() {
		s, err := stringMatch(origin)
		if err != nil {
			return nil, problem.Within(fmt.Sprintf("allowOrigins[%d]", i), err)
		}
		out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, s)
	}
	if len(in.GetAllowOrigins()) == 0 {
		for _, origin := range in.GetAllowOrigin() { //nolint:staticcheck // still in use
			out.AllowOriginStringMatch = append(out.AllowOriginStringMatch,
				&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: origin}})
		}
	}
	return out, nil
}
