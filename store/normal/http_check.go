package normal

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// checkString validates a StringMatch. nil and a match without a type are valid. An empty prefix is refused, because
// Envoy refuses it. checkPath permits an empty prefix.
func checkString(r *report, at string, m *networkingv1.StringMatch) {
	if p, is := m.GetMatchType().(*networkingv1.StringMatch_Prefix); is && p.Prefix == "" {
		r.refusef(problem.Required, at+".prefix", "must not be empty")
	}
	checkPath(r, at, m)
}

// checkPath validates a StringMatch on a path, whose prefix may be empty.
func checkPath(r *report, at string, m *networkingv1.StringMatch) {
	r.step()
	if t, is := m.GetMatchType().(*networkingv1.StringMatch_Regex); is {
		checkRegex(r, at+".regex", t.Regex)
	}
}

// duration1ms validates a duration of at least 1 ms, in whole milliseconds. nil is valid. If the argument zero is true,
// a duration of 0 is valid too, and means "no limit" or "off".
func (r *report) duration1ms(at string, d *durationpb.Duration, zero bool) {
	if d == nil {
		return
	}
	v := d.AsDuration()
	if err := d.CheckValid(); err != nil {
		r.errorf(at, "is out of range")
	} else if v != 0 && v < time.Millisecond || v == 0 && !zero {
		r.errorf(at, "must be at least 1ms, not %v", v)
	} else if v%time.Millisecond != 0 {
		r.refusef(problem.Invalid, at, "%v is finer than a millisecond", v)
	}
}

// percent validates a percentage; nil is valid.
func (r *report) percent(at string, p *networkingv1.Percent) {
	if p != nil && !(p.Value >= 0 && p.Value <= 100) { // also refuses NaN
		r.errorf(at+".value", "%v is not in 0-100", p.Value)
	}
}

// faultPercent validates a percentage of faults. As in Istio's webhook, it must be 0 or at least 0.0001
// (validatePercentage).
func (r *report) faultPercent(at string, p *networkingv1.Percent) {
	if r.percent(at, p); p.GetValue() > 0 && p.GetValue() < 0.0001 {
		r.refusef(problem.Invalid, at+".value", "%v is neither 0 nor at least 0.0001", p.Value)
	}
}

// headerName matches the name of a header (RFC 9110, token).
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// checkHeaderName validates the name of a header: a pseudo-header, a claim (@request.auth.claims...) or a token.
func checkHeaderName(r *report, at, name string) {
	if !headerName.MatchString(strings.TrimPrefix(name, ":")) && !strings.HasPrefix(name, "@request.auth.claims") {
		r.errorf(at, "%q is no header name", name)
	}
}

// checkHeaderValue refuses a header value that would make Envoy refuse the whole route configuration. It also refuses a
// value that reads environment variables of proxies. In an existing object, the rule with such a value is omitted from
// the routes.
func checkHeaderValue(r *report, at, value string) {
	if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		r.refusef(problem.Invalid, at, "%q has control characters", value)
	} else if err := model.CheckHeaderFormat(value); err != nil {
		r.refusef(problem.Invalid, at, "%q: %v; the rule is left out", value, err)
	}
}

// matchedHeader matches the header names that Istio's webhook accepts in a match.
var matchedHeader = regexp.MustCompile("^[-_A-Za-z0-9]+$")

// checkMatchedHeader validates the name of a header, or of a claim, in a match.
func checkMatchedHeader(r *report, at, name string) {
	_, claim := model.RoutedClaim(name)
	if checkHeaderName(r, at, name); !claim && !matchedHeader.MatchString(name) && headerName.MatchString(name) {
		r.refusef(problem.Invalid, at, "%q is no name that a match can be about: want letters, digits, dashes and underscores", name)
	}
}

// checkHeaders validates operations on headers. allowed lists the header names for the host that may be set on
// requests. Operations on other headers that Envoy alone sets are refused. In existing objects such operations have no
// effect.
func checkHeaders(r *report, at string, h *networkingv1.Headers, allowed ...string) {
	for _, of := range []struct {
		field string
		ops   *networkingv1.Headers_HeaderOperations
	}{{".request", h.GetRequest()}, {".response", h.GetResponse()}} {
		for _, by := range []struct {
			field string
			m     map[string]string
		}{{".set", of.ops.GetSet()}, {".add", of.ops.GetAdd()}} {
			for _, name := range sortedKeys(by.m) {
				path := fmt.Sprintf("%s%s%s[%s]", at, of.field, by.field, name)
				checkHeaderName(r, path, name)
				checkHeaderValue(r, path, by.m[name])
				host := of.field == ".request" && slices.Contains(allowed, strings.ToLower(name))
				if host {
					checkRequestLine(r, path, by.m[name])
				} else if model.SetByEnvoy(name) {
					r.refusef(problem.Invalid, path, "%q is set by Envoy alone: a stored object applies without the operation", name)
				} else if model.ExceedsRetries(name, by.m[name]) {
					r.refusef(problem.Invalid, path, "want a number of at most %d: a stored object applies without the operation", model.MostRetries)
				}
			}
		}
		for i, name := range of.ops.GetRemove() {
			path := fmt.Sprintf("%s%s.remove[%d]", at, of.field, i)
			checkHeaderName(r, path, name)
			if model.SetByEnvoy(name) {
				r.refusef(problem.Invalid, path, "%q cannot be removed: a stored object applies without the operation", name)
			}
		}
	}
}

// checkDirectResponse validates a direct response: a body that Istio's webhook accepts (validateHTTPDirectResponse),
// and a status code that Envoy accepts (DirectResponseAction).
func checkDirectResponse(r *report, at string, h *networkingv1.HTTPRoute) {
	d := h.DirectResponse
	if d == nil {
		return
	}
	if d.Status < 200 || d.Status > 599 {
		r.errorf(at+".directResponse.status", "%d is not in 200-599", d.Status)
	}
	if size := len(d.GetBody().GetString_()) + len(d.GetBody().GetBytes()); size > 1<<20 {
		r.errorf(at+".directResponse.body", "is larger than 1 MiB")
	}
	if h.Fault != nil {
		r.refusef(problem.NoEffect, at+".fault", "a direct response cannot have faults")
	}
	if h.Rewrite != nil {
		r.refusef(problem.NoEffect, at+".rewrite", "a direct response cannot be rewritten")
	}
}

// checkRedirect validates the redirect of a route, if it has one.
func checkRedirect(r *report, at string, h *networkingv1.HTTPRoute) {
	x := h.Redirect
	if x == nil {
		return
	}
	if h.Fault != nil {
		r.errorf(at+".fault", "a redirect cannot have faults")
	}
	if h.Rewrite != nil {
		r.errorf(at+".rewrite", "a redirect cannot be rewritten")
	}
	derived, derives := x.RedirectPort.(*networkingv1.HTTPRedirect_DerivePort)
	if x.Uri == "" && x.Authority == "" && x.PrefixRewrite == "" && x.RedirectPort == nil && x.Scheme == "" {
		r.requiredf(at+".redirect", "at least one of uri, prefixRewrite, authority, port and scheme is needed")
	}
	if x.Uri != "" && x.PrefixRewrite != "" {
		r.errorf(at+".redirect", "uri and prefixRewrite cannot be combined")
	}
	if x.Scheme != "" && x.Scheme != "http" && x.Scheme != "https" {
		r.errorf(at+".redirect.scheme", "%q is neither http nor https", x.Scheme)
	}
	switch x.RedirectCode {
	case 0, 301, 302, 303, 307, 308:
	default:
		r.errorf(at+".redirect.redirectCode", "%d is not one of 301, 302, 303, 307, 308", x.RedirectCode)
	}
	if p, ok := x.RedirectPort.(*networkingv1.HTTPRedirect_Port); ok {
		r.port(at+".redirect.port", p.Port)
	}
	if derives && derived.DerivePort > networkingv1.HTTPRedirect_FROM_REQUEST_PORT {
		r.errorf(at+".redirect.derivePort", "unknown value %d", derived.DerivePort)
	}
}

// retryConditions are the conditions that Envoy accepts in x-envoy-retry-on and x-envoy-retry-grpc-on.
var retryConditions = map[string]bool{
	"5xx": true, "gateway-error": true, "reset": true, "reset-before-request": true, "connect-failure": true,
	"envoy-ratelimited": true, "retriable-4xx": true, "refused-stream": true, "retriable-status-codes": true,
	"retriable-headers": true, "http3-post-connect-failure": true, "cancelled": true, "deadline-exceeded": true,
	"internal": true, "resource-exhausted": true, "unavailable": true,
}

// checkRetries validates a retry policy; nil is valid.
func checkRetries(r *report, at string, x *networkingv1.HTTPRetry) {
	if x == nil {
		return
	}
	if x.Attempts < 0 {
		r.errorf(at+".attempts", "must not be negative")
	}
	if x.Attempts > model.MostRetries {
		r.refusef(problem.NotAllowed, at+".attempts", "%d: a request is retried %d times at most", x.Attempts, model.MostRetries)
	}
	if x.Attempts == 0 && (x.PerTryTimeout != nil || x.RetryOn != "" || x.RetryRemoteLocalities != nil) {
		r.refusef(problem.NoEffect, at+".attempts", "must be more than 0 where other settings of retries are given: nothing is retried")
	}
	r.duration1ms(at+".perTryTimeout", x.PerTryTimeout, true)
	r.duration1ms(at+".backoff", x.Backoff, true)
	if x.RetryOn == "" {
		return
	}
	for stated := range strings.SplitSeq(x.RetryOn, ",") {
		on := strings.TrimSpace(stated)
		code, _ := strconv.Atoi(stated)
		switch {
		case retryConditions[stated] || http.StatusText(code) != "":
		case on == "" || retryConditions[on] || len(on) == 3 && on[0] >= '1' && on[0] <= '5' && strings.Trim(on, "0123456789") == "":
			r.refusef(problem.Invalid, at+".retryOn", "%q is neither a retry condition nor a status code that has a name", stated)
		default:
			r.errorf(at+".retryOn", "%q is neither a retry condition nor a status code", on)
		}
	}
}

// checkFault validates a fault injection; nil is valid.
func checkFault(r *report, at string, f *networkingv1.HTTPFaultInjection) {
	if f == nil {
		return
	}
	if f.Delay == nil && f.Abort == nil {
		r.requiredf(at, "at least one of delay and abort is needed")
	}
	if d := f.Delay; d != nil {
		r.faultPercent(at+".delay.percentage", d.Percentage)
		switch t := d.HttpDelayType.(type) {
		case *networkingv1.HTTPFaultInjection_Delay_FixedDelay:
			r.duration1ms(at+".delay.fixedDelay", t.FixedDelay, false)
		case *networkingv1.HTTPFaultInjection_Delay_ExponentialDelay:
			r.unsupportedf(at+".delay.exponentialDelay", "is not supported, as in Istio: want fixedDelay")
		default: // accepted by Istio
			r.warnf(problem.NoEffect, at+".delay.fixedDelay", "is not stated: nothing is delayed")
		}
		if d.Percent < 0 || d.Percent > 100 { //nolint:staticcheck // deprecated, still in use
			r.errorf(at+".delay.percent", "%d is not in 0-100", d.Percent) //nolint:staticcheck // as above
		}
	}
	if a := f.Abort; a != nil {
		r.faultPercent(at+".abort.percentage", a.Percentage)
		switch t := a.ErrorType.(type) {
		case *networkingv1.HTTPFaultInjection_Abort_HttpStatus:
			if t.HttpStatus < 200 || t.HttpStatus > 599 {
				r.errorf(at+".abort.httpStatus", "%d is not in 200-599", t.HttpStatus)
			}
		case *networkingv1.HTTPFaultInjection_Abort_GrpcStatus:
			if !grpcStatus[t.GrpcStatus] {
				r.errorf(at+".abort.grpcStatus", "%q is no gRPC status such as UNAVAILABLE", t.GrpcStatus)
			}
		case *networkingv1.HTTPFaultInjection_Abort_Http2Error:
			r.unsupportedf(at+".abort.http2Error", "is not supported, as in Istio: want httpStatus or grpcStatus")
		default: // accepted by Istio
			r.warnf(problem.NoEffect, at+".abort", "has neither httpStatus nor grpcStatus: nothing is aborted")
		}
	}
}

// grpcStatus has the names of the status codes of gRPC.
var grpcStatus = map[string]bool{
	"OK": true, "CANCELLED": true, "UNKNOWN": true, "INVALID_ARGUMENT": true, "DEADLINE_EXCEEDED": true, "NOT_FOUND": true,
	"ALREADY_EXISTS": true, "PERMISSION_DENIED": true, "RESOURCE_EXHAUSTED": true, "FAILED_PRECONDITION": true,
	"ABORTED": true, "OUT_OF_RANGE": true, "UNIMPLEMENTED": true, "INTERNAL": true, "UNAVAILABLE": true, "DATA_LOSS": true,
	"UNAUTHENTICATED": true,
}

// checkMirrors validates the mirrors of a route.
func checkMirrors(r *report, at string, h *networkingv1.HTTPRoute) {
	r.percent(at+".mirrorPercentage", h.MirrorPercentage)
	if h.MirrorPercent.GetValue() > 100 { //nolint:staticcheck // deprecated, still in use
		r.errorf(at+".mirrorPercent", "must be at most 100")
	}
	if h.Mirror != nil && len(h.Mirrors) > 0 {
		r.errorf(at+".mirrors", "cannot be combined with mirror")
	}
	if len(h.Mirrors) > model.MostMirrors {
		r.refusef(problem.NotAllowed, at+".mirrors", "%d mirrors: the first %d alone get requests", len(h.Mirrors), model.MostMirrors)
	}
	for i, m := range h.Mirrors {
		path := fmt.Sprintf("%s.mirrors[%d]", at, i)
		if m.Destination == nil {
			r.requiredf(path+".destination", "must not be empty")
		}
		r.percent(path+".percentage", m.Percentage)
	}
}

// checkRequestLine refuses a path or host that would change the request line. In an existing object, the rule with such
// a text is omitted from the routes.
func checkRequestLine(r *report, at, text string) {
	if !model.FitsRequestLine(text) {
		r.refusef(problem.Invalid, at, "%q has spaces or control characters; the rule is left out", text)
	}
}

// checkRewrite validates a rewrite; nil is valid.
func checkRewrite(r *report, at string, x *networkingv1.HTTPRewrite) {
	if x == nil {
		return
	}
	switch {
	case x.Uri == "" && x.Authority == "" && x.UriRegexRewrite == nil:
		r.requiredf(at, "at least one of uri, authority and uriRegexRewrite is needed")
	case x.Uri != "" && x.UriRegexRewrite != nil:
		r.errorf(at, "uri and uriRegexRewrite cannot be combined")
	}
	checkRequestLine(r, at+".uri", x.Uri)
	checkRequestLine(r, at+".authority", x.Authority)
	checkRequestLine(r, at+".uriRegexRewrite.rewrite", x.GetUriRegexRewrite().GetRewrite())
	if x.UriRegexRewrite != nil {
		if checkRegex(r, at+".uriRegexRewrite.match", x.UriRegexRewrite.Match); x.UriRegexRewrite.Rewrite == "" {
			r.refusef(problem.Required, at+".uriRegexRewrite.rewrite", "must not be empty")
		}
	}
}

// checkAuthority refuses a route that sets the host of requests more than once.
func checkAuthority(r *report, at string, h *networkingv1.HTTPRoute) {
	set := h.Rewrite.GetAuthority() != ""
	for _, of := range []struct {
		field string
		by    map[string]string
	}{{"set", h.Headers.GetRequest().GetSet()}, {"add", h.Headers.GetRequest().GetAdd()}} {
		for _, name := range sortedKeys(of.by) {
			if !strings.EqualFold(name, ":authority") && !strings.EqualFold(name, "host") {
				continue
			}
			if set {
				r.refusef(problem.Duplicate, fmt.Sprintf("%s.headers.request.%s[%s]", at, of.field, name), "the host of the requests is set twice")
			}
			set = set || of.by[name] != ""
		}
	}
}

// checkCORS validates a CORS policy by the rules of Istio's webhook (validateCORSPolicy). Envoy returns the lists to
// clients unchanged.
func checkCORS(r *report, at string, p *networkingv1.CorsPolicy) {
	for i, m := range p.GetAllowOrigins() {
		if m.GetExact()+m.GetPrefix()+m.GetRegex() == "" {
			r.refusef(problem.Required, fmt.Sprintf("%s.allowOrigins[%d]", at, i), "one of exact, prefix and regex is needed")
		}
		checkPath(r, fmt.Sprintf("%s.allowOrigins[%d]", at, i), m)
	}
	for i, method := range p.GetAllowMethods() {
		if !slices.Contains(methods, method) {
			r.refusef(problem.Invalid, fmt.Sprintf("%s.allowMethods[%d]", at, i), "%q is not one of %s",
				method, strings.Join(methods, ", "))
		}
	}
	for _, of := range []list{{"allowHeaders", p.GetAllowHeaders()}, {"exposeHeaders", p.GetExposeHeaders()}} {
		for i, name := range of.values {
			if name != "*" && !matchedHeader.MatchString(name) {
				r.refusef(problem.Invalid, fmt.Sprintf("%s.%s[%d]", at, of.field, i), "%q is no header name", name)
			}
		}
	}
	if r.duration1ms(at+".maxAge", p.GetMaxAge(), true); p.GetMaxAge().GetNanos() > 0 {
		r.refusef(problem.Invalid, at+".maxAge", "%v is finer than a second", p.MaxAge.AsDuration())
	}
}

// methods lists the standard methods of HTTP. A CORS policy may allow these methods alone.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace}
