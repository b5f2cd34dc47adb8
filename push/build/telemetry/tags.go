package telemetry

import (
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
)

// DryRunTags are the span tags with the results of AuthorizationPolicies in dry runs. Envoy omits a tag without a
// result (istio: pilot/pkg/networking/core/tracing.go). Callers must not change DryRunTags.
var DryRunTags = []Tag{
	{Name: "istio.authorization.dry_run.allow_policy.name", Kind: DryRun, Value: "istio_dry_run_allow_shadow_effective_policy_id"},
	{Name: "istio.authorization.dry_run.allow_policy.result", Kind: DryRun, Value: "istio_dry_run_allow_shadow_engine_result"},
	{Name: "istio.authorization.dry_run.deny_policy.name", Kind: DryRun, Value: "istio_dry_run_deny_shadow_effective_policy_id"},
	{Name: "istio.authorization.dry_run.deny_policy.result", Kind: DryRun, Value: "istio_dry_run_deny_shadow_engine_result"},
}

// encodeTags encodes the tags of spans, in order.
func encodeTags(tags []Tag) (out []*tracingv3.CustomTag) {
	for _, t := range tags {
		out = append(out, t.encode())
	}
	return out
}

// encode encodes a tag of spans.
func (t Tag) encode() *tracingv3.CustomTag {
	out := &tracingv3.CustomTag{Tag: t.Name}
	switch t.Kind {
	case Literal:
		out.Type = &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: t.Value}}
	case Environment:
		out.Type = &tracingv3.CustomTag_Environment_{Environment: &tracingv3.CustomTag_Environment{Name: t.Value, DefaultValue: t.Default}}
	case Header:
		out.Type = &tracingv3.CustomTag_RequestHeader{RequestHeader: &tracingv3.CustomTag_Header{Name: t.Value, DefaultValue: t.Default}}
	case Formatter:
		out.Type = &tracingv3.CustomTag_Value{Value: t.Value}
	case DryRun:
		out.Type = &tracingv3.CustomTag_Metadata_{Metadata: &tracingv3.CustomTag_Metadata{
			Kind: &metadatav3.MetadataKind{Kind: &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}},
			MetadataKey: &metadatav3.MetadataKey{Key: "envoy.filters.http.rbac", Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: t.Value}},
			}},
		}}
	}
	return out
}
