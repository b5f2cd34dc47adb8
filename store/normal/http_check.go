package normal

//lint:file-ignore SA1019 deprecated fields are what users' YAML and the field's proxies still have

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/problem"
)

// checkString checks a StringMatch; nil is fine, and so is one that says nothing. The empty prefix is for paths: elsewhere Envoy has none.
func checkString(r *report, at string, m *networkingv1.StringMatch) {
	if p, is := m.GetMatchType().(*networkingv1.StringMatch_Prefix); is && p.Prefix == "" {
		r.refusef(problem.Required, at+".prefix", "must not be empty")
	}
	checkPath(r, at, m)
}

// checkPath checks a StringMatch whose prefix may be empty.
func checkPath(r *report, at string, m *networkingv1.StringMatch) {
	if t, is := m.GetMatchType().(*networkingv1.StringMatch_Regex); is {
		checkRegex(r, at+".regex", t.Regex)
	}
}

// checkRegex takes what Envoy takes: RE2, and no longer than 1024 bytes.
func checkRegex(r *report, at, expr string) {
	if len(expr) > 1024 {
		r.errorf(at, "is longer than 1024 bytes")
		return
	}
	if expr == "" {
		r.requiredf(at, "must not be empty")
	} else if _, err := regexp.Compile(expr); err != nil {
		r.errorf(at, "is no regular expression (RE2): %v", err)
	}
}

// duration1ms checks a duration; nil is fine. zero: 0 is allowed too (it means "none").
func (r *report) duration1ms(at string, d *durationpb.Duration, zero bool) {
	if d == nil {
		return
	}
	v := d.AsDuration()
	if err := d.CheckValid(); err != nil {
		r.errorf(at, "is out of range")
	} else if v != 0 && v < time.Millisecond || v == 0 && !zero {
		r.errorf(at, "must be at least 1ms, not %v", v)
	}
}

func (r *report) percent(at string, p *networkingv1.Percent) {
	if p != nil && !(p.Value >= 0 && p.Value <= 100) { // NaN too
		r.errorf(at+".value", "%v is not in 0-100", p.Value)
	}
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func checkHeaderName(r *report, at, name string) {
	if !headerName.MatchString(strings.TrimPrefix(name, ":")) && !strings.HasPrefix(name, "@request.auth.claims") {
		r.errorf(at, "%q is no header name", name)
	}
}

// internal says whether a header is one that Envoy keeps for itself.
func internal(name string) bool {
	return strings.HasPrefix(name, ":") || strings.EqualFold(name, "host")
}

// checkHeaders checks changes of headers. allowed are those of requests that may be set although they are internal: Istio's webhook refuses
// others, and istiod draws what is there all the same.
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
				if internal(name) && !(of.field == ".request" && slices.Contains(allowed, strings.ToLower(name))) {
					r.refusef(problem.Invalid, path, "%q is set by Envoy alone", name)
				}
			}
		}
		for i, name := range of.ops.GetRemove() {
			path := fmt.Sprintf("%s%s.remove[%d]", at, of.field, i)
			checkHeaderName(r, path, name)
			if internal(name) {
				r.refusef(problem.Invalid, path, "%q cannot be removed", name)
			}
		}
	}
}

func checkRedirect(r *report, at string, h *networkingv1.HTTPRoute) {
	if d := h.DirectResponse; d != nil {
		if d.Status < 100 || d.Status > 599 {
			r.errorf(at+".directResponse.status", "%d is not in 100-599", d.Status)
		}
		if size := len(d.GetBody().GetString_()) + len(d.GetBody().GetBytes()); size > 100<<10 {
			r.errorf(at+".directResponse.body", "is larger than 100 KiB")
		}
	}
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
		r.errorf(at+".redirect", "uri and prefixRewrite: one of the two")
	}
	if x.Scheme != "" && x.Scheme != "http" && x.Scheme != "https" {
		r.errorf(at+".redirect.scheme", "%q is neither http nor https", x.Scheme)
	}
	switch x.RedirectCode {
	case 0, 301, 302, 303, 307, 308:
	default:
		r.errorf(at+".redirect.redirectCode", "%d is none of 301, 302, 303, 307, 308", x.RedirectCode)
	}
	if p, ok := x.RedirectPort.(*networkingv1.HTTPRedirect_Port); ok {
		r.port(at+".redirect.port", p.Port)
	}
	if derives && derived.DerivePort > networkingv1.HTTPRedirect_FROM_REQUEST_PORT {
		r.errorf(at+".redirect.derivePort", "unknown value %d", derived.DerivePort)
	}
}

// retryConditions is what Envoy takes in x-envoy-retry-on and x-envoy-retry-grpc-on.
var retryConditions = map[string]bool{
	"5xx": true, "gateway-error": true, "reset": true, "reset-before-request": true, "connect-failure": true,
	"envoy-ratelimited": true, "retriable-4xx": true, "refused-stream": true, "retriable-status-codes": true,
	"retriable-headers": true, "http3-post-connect-failure": true, "cancelled": true, "deadline-exceeded": true,
	"internal": true, "resource-exhausted": true, "unavailable": true,
}

func checkRetries(r *report, at string, x *networkingv1.HTTPRetry) {
	if x == nil {
		return
	}
	if x.Attempts < 0 {
		r.errorf(at+".attempts", "must not be negative")
	}
	if x.Attempts == 0 && (x.PerTryTimeout != nil || x.RetryOn != "" || x.RetryRemoteLocalities != nil) {
		r.errorf(at+".attempts", "must be more than 0 where other settings of retries are given")
	}
	r.duration1ms(at+".perTryTimeout", x.PerTryTimeout, true)
	r.duration1ms(at+".backoff", x.Backoff, true)
	for _, on := range strings.Split(x.RetryOn, ",") {
		on = strings.TrimSpace(on)
		if on == "" || retryConditions[on] || len(on) == 3 && on[0] >= '1' && on[0] <= '5' && strings.Trim(on, "0123456789") == "" {
			continue
		}
		r.errorf(at+".retryOn", "%q is neither a retry condition nor a status code", on)
	}
}

func checkFault(r *report, at string, f *networkingv1.HTTPFaultInjection) {
	if f == nil {
		return
	}
	if f.Delay == nil && f.Abort == nil {
		r.requiredf(at, "at least one of delay and abort is needed")
	}
	if d := f.Delay; d != nil {
		r.percent(at+".delay.percentage", d.Percentage)
		switch t := d.HttpDelayType.(type) {
		case *networkingv1.HTTPFaultInjection_Delay_FixedDelay:
			r.duration1ms(at+".delay.fixedDelay", t.FixedDelay, false)
		case *networkingv1.HTTPFaultInjection_Delay_ExponentialDelay:
			r.unsupportedf(at+".delay.exponentialDelay", "is not supported, as in Istio: want fixedDelay")
		default:
			r.requiredf(at+".delay.fixedDelay", "must not be empty")
		}
		if d.Percent < 0 || d.Percent > 100 { //nolint:staticcheck // users still have it
			r.errorf(at+".delay.percent", "%d is not in 0-100", d.Percent) //nolint:staticcheck // as above
		}
	}
	if a := f.Abort; a != nil {
		r.percent(at+".abort.percentage", a.Percentage)
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
		default:
			r.requiredf(at+".abort", "one of httpStatus and grpcStatus is needed")
		}
	}
}

var grpcStatus = map[string]bool{
	"OK": true, "CANCELLED": true, "UNKNOWN": true, "INVALID_ARGUMENT": true, "DEADLINE_EXCEEDED": true, "NOT_FOUND": true,
	"ALREADY_EXISTS": true, "PERMISSION_DENIED": true, "RESOURCE_EXHAUSTED": true, "FAILED_PRECONDITION": true,
	"ABORTED": true, "OUT_OF_RANGE": true, "UNIMPLEMENTED": true, "INTERNAL": true, "UNAVAILABLE": true, "DATA_LOSS": true,
	"UNAUTHENTICATED": true,
}

func checkMirrors(r *report, at string, h *networkingv1.HTTPRoute) {
	r.percent(at+".mirrorPercentage", h.MirrorPercentage)
	if h.MirrorPercent.GetValue() > 100 { //nolint:staticcheck // users still have it
		r.errorf(at+".mirrorPercent", "must be at most 100")
	}
	if h.Mirror != nil && len(h.Mirrors) > 0 {
		r.errorf(at+".mirrors", "stands with mirror: one of the two")
	}
	for i, m := range h.Mirrors {
		path := fmt.Sprintf("%s.mirrors[%d]", at, i)
		if m.Destination == nil {
			r.requiredf(path+".destination", "must not be empty")
		}
		r.percent(path+".percentage", m.Percentage)
	}
}

func checkRewrite(r *report, at string, x *networkingv1.HTTPRewrite) {
	if x == nil {
		return
	}
	switch {
	case x.Uri == "" && x.Authority == "" && x.UriRegexRewrite == nil:
		r.requiredf(at, "at least one of uri, authority and uriRegexRewrite is needed")
	case x.Uri != "" && x.UriRegexRewrite != nil:
		r.errorf(at, "uri and uriRegexRewrite: one of the two")
	}
	if x.UriRegexRewrite != nil {
		checkRegex(r, at+".uriRegexRewrite.match", x.UriRegexRewrite.Match)
	}
}
