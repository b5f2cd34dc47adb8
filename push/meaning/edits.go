package meaning

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/cut"
)

// takeHeaders returns the changes that a route makes to headers, and clears them in the route. The result text lists
// the changes in order, without credentials. The result addedDigest is a digest of the added headers, or "" if the
// route adds no headers.
func takeHeaders(r *routev3.Route) (text, addedDigest string) {
	var parts []string
	if len(r.RequestHeadersToAdd)+len(r.ResponseHeadersToAdd) > 0 {
		all := &routev3.Route{RequestHeadersToAdd: r.RequestHeadersToAdd, ResponseHeadersToAdd: r.ResponseHeadersToAdd}
		addedDigest = digest(all.ProtoReflect(), maxDepth)
	}
	take := func(of string, add *[]*corev3.HeaderValueOption, remove *[]string) {
		for _, h := range *add {
			verb := "adds"
			if h.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
				verb = "sets"
			}
			public := proto.CloneOf(h)
			cut.Message(public)
			text := fmt.Sprintf("%s %s=%s", verb, h.GetHeader().GetKey(), public.GetHeader().GetValue())
			simple := &corev3.HeaderValueOption{AppendAction: h.GetAppendAction(),
				Header: &corev3.HeaderValue{Key: h.GetHeader().GetKey(), Value: h.GetHeader().GetValue()}}
			if verb == "adds" {
				simple.AppendAction = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
			}
			if !proto.Equal(h, simple) { // the header has further settings
				text = digest(public.ProtoReflect(), maxDepth)
			}
			parts = append(parts, of+" "+text)
		}
		for _, name := range *remove {
			parts = append(parts, of+" removes "+name)
		}
		*add, *remove = nil, nil
	}
	take("request", &r.RequestHeadersToAdd, &r.RequestHeadersToRemove)
	take("response", &r.ResponseHeadersToAdd, &r.ResponseHeadersToRemove)
	return strings.Join(parts, ", "), addedDigest
}

// takeFault returns the faults that a route injects as a text, and clears them in the route. If a text cannot express
// the faults, takeFault returns "" and leaves the faults in the route.
func takeFault(r *routev3.Route) string {
	packed, f := r.GetTypedPerFilterConfig()[xds.FaultFilter], &faultv3.HTTPFault{}
	if packed == nil || packed.UnmarshalTo(f) != nil {
		return ""
	}
	var parts []string
	simple := &faultv3.HTTPFault{}
	if d := f.GetDelay(); d.GetFixedDelay() != nil {
		parts = append(parts, fmt.Sprintf("delay %v of %s", d.GetFixedDelay().AsDuration(), fractionText(d.GetPercentage())))
		simple.Delay = &commonfaultv3.FaultDelay{Percentage: d.GetPercentage(),
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: d.GetFixedDelay()}}
	}
	if a := f.GetAbort(); a.GetHttpStatus() != 0 {
		parts = append(parts, fmt.Sprintf("abort %d of %s", a.GetHttpStatus(), fractionText(a.GetPercentage())))
		simple.Abort = &faultv3.FaultAbort{Percentage: a.GetPercentage(),
			ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: a.GetHttpStatus()}}
	}
	if !proto.Equal(f, simple) {
		return ""
	}
	delete(r.TypedPerFilterConfig, xds.FaultFilter)
	return strings.Join(parts, ", ")
}

// fractionText returns a fraction as a percentage.
func fractionText(f *typev3.FractionalPercent) string {
	per := map[typev3.FractionalPercent_DenominatorType]float64{typev3.FractionalPercent_HUNDRED: 1,
		typev3.FractionalPercent_TEN_THOUSAND: 100, typev3.FractionalPercent_MILLION: 10000}[f.GetDenominator()]
	return strconv.FormatFloat(float64(f.GetNumerator())/per, 'g', -1, 64) + "%"
}
