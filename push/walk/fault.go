package walk

import (
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

// fault applies the faults of a route, and reports whether they abort every request.
func (w *walker) fault(route *routev3.Route) bool {
	config := route.GetTypedPerFilterConfig()["envoy.filters.http.fault"]
	f := &faultv3.HTTPFault{}
	if config == nil || config.UnmarshalTo(f) != nil {
		return false
	}
	if d := f.GetDelay(); d != nil {
		w.step("delays %v of %s", d.GetFixedDelay().AsDuration(), line(d.GetPercentage()))
	}
	a := f.GetAbort()
	if a == nil {
		return false
	}
	status := strconv.FormatUint(uint64(a.GetHttpStatus()), 10)
	code := int(a.GetHttpStatus())
	var stated *codes.Code
	if grpc, is := a.GetErrorType().(*faultv3.FaultAbort_GrpcStatus); is {
		status = "gRPC's " + codes.Code(grpc.GrpcStatus).String()
		of := codes.Code(grpc.GrpcStatus)
		stated = &of
		code = 200 // the gRPC status is in a header, also for clients that do not speak gRPC
	}
	w.step("aborts with %s of %s", status, line(a.GetPercentage()))
	share := shareOf(a.GetPercentage())
	if share >= 1 {
		if w.answer(code); stated != nil {
			w.result.GRPC = stated
		}
		return true
	}
	if share > 0 {
		w.doubt(Likely, "a share of the requests is aborted with %s", status)
	}
	return false
}

var denominators = map[typev3.FractionalPercent_DenominatorType]float64{typev3.FractionalPercent_HUNDRED: 1e2,
	typev3.FractionalPercent_TEN_THOUSAND: 1e4, typev3.FractionalPercent_MILLION: 1e6}

// shareOf returns a percentage as a fraction; 1 means all requests.
func shareOf(p *typev3.FractionalPercent) float64 {
	return float64(p.GetNumerator()) / denominators[p.GetDenominator()]
}

// isPreflight reports whether the request is a CORS preflight.
func (w *walker) isPreflight() bool {
	return w.Headers[":method"] == "OPTIONS" && w.Headers["origin"] != "" && w.Headers["access-control-request-method"] != ""
}

// preflight reports whether the CORS filter answers the request as a preflight.
func (w *walker) preflight(vh *routev3.VirtualHost, route *routev3.Route) bool {
	policy := &corsv3.CorsPolicy{}
	for _, of := range []map[string]*anypb.Any{route.GetTypedPerFilterConfig(), vh.GetTypedPerFilterConfig()} {
		if config := of["envoy.filters.http.cors"]; config.MessageIs(policy) && config.UnmarshalTo(policy) == nil {
			break
		}
	}
	return w.isPreflight() && slices.ContainsFunc(policy.GetAllowOriginStringMatch(), func(m *matcherv3.StringMatcher) bool {
		return stringMatches(m, w.Headers["origin"])
	})
}
