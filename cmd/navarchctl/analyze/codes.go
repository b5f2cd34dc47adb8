package analyze

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Reporter is the part of Navarch that reports a code. navarchctl analyze reports the codes of all parts.
type Reporter string

// The reporters. The leader reports the problems of SchemaValidationError and SchemaWarning too, but without this code:
// they have a problem.Code, and only navarchctl analyze adds the code of Istio's webhook (schemaCode).
const (
	Leader   Reporter = "leader"   // navarchd's leader, continuously, from the configuration of the mesh
	Replicas Reporter = "replicas" // navarchd's replicas, continuously, from the configuration of connected proxies
	Analyze  Reporter = "analyze"  // only navarchctl analyze
)

// reporters contains the codes that a part of navarchd reports too.
var reporters = map[problem.Analyzer]Reporter{
	problem.ReferencedResourceNotFound:                  Leader,
	problem.SchemaValidationError:                       Leader,
	problem.MisplacedAnnotation:                         Leader,
	problem.UnknownAnnotation:                           Leader,
	problem.ConflictingMeshGatewayVirtualServiceHosts:   Leader,
	problem.ConflictingSidecarWorkloadSelectors:         Leader,
	problem.MultipleSidecarsWithoutWorkloadSelectors:    Leader,
	problem.NoMatchingWorkloadsFound:                    Leader,
	problem.VirtualServiceUnreachableRule:               Leader,
	problem.VirtualServiceIneffectiveMatch:              Leader,
	problem.VirtualServiceHostNotFoundInGateway:         Leader,
	problem.SchemaWarning:                               Leader,
	problem.ServiceEntryAddressesRequired:               Leader,
	problem.InvalidApplicationUID:                       Leader,
	problem.EnvoyFilterUsesReplaceOperationIncorrectly:  Leader,
	problem.EnvoyFilterUsesAddOperationIncorrectly:      Leader,
	problem.EnvoyFilterUsesRemoveOperationIncorrectly:   Leader,
	problem.ConflictingTelemetryWorkloadSelectors:       Leader,
	problem.MultipleTelemetriesWithoutWorkloadSelectors: Leader,
	problem.ReferencedInternalGateway:                   Leader,
	problem.DestinationRuleSubsetNotSelectPods:          Leader,
	problem.UnknownDestinationRuleHost:                  Leader,
	problem.ConflictingServiceEntryProtocol:             Leader,
	problem.RouteWithoutEndpoints:                       Leader,

	problem.TenantNearBudget: Leader,
	problem.ClusterStale:     Leader,

	problem.RefusedByProxies:               Replicas,
	problem.VersionWithheld:                Replicas,
	problem.ConflictingGateways:            Replicas,
	problem.GatewayPortNotDefinedOnService: Replicas,

	problem.JwtClaimBasedRoutingWithoutRequestAuthN: Replicas,
	problem.InvalidTelemetryProvider:                Replicas, // for objects of the root namespace: the leader
}

// ReporterOf returns the part of Navarch that reports a code. For unknown codes it returns Analyze.
func ReporterOf(code problem.Analyzer) Reporter { return cmp.Or(reporters[code], Analyze) }

// Codes returns every code that this build knows, of Istio and of Navarch, sorted. The caller owns the result.
func Codes() []problem.Analyzer { return problem.Analyzers() }

// violations adds a finding for each violation of an object's CRD. Objects of a cluster are left out, because the API
// server has checked them, and objects with a finding that the webhook refuses them need no second reason.
func (w *world) violations(events []object.Event) {
	refused := map[object.ID]bool{}
	for _, f := range w.findings {
		refused[f.id] = refused[f.id] || f.Code == string(problem.SchemaValidationError)
	}
	events = slices.DeleteFunc(slices.Clone(events), func(e object.Event) bool {
		return e.Op != object.Put || e.Object.Location == "" || refused[e.ID] || !ofIstio(e.ID)
	})
	found := make([][]validate.Error, len(events))
	loop.Each(len(events), func(i int) { // the definition bounds the time
		found[i] = validate.Violations(context.Background(), events[i].Object)
	})
	for i, e := range events {
		for _, v := range found[i] {
			w.problem(object.Problem{ID: e.ID, Location: e.Object.Location, Field: v.Field, Code: v.Code,
				Analyzer: problem.SchemaValidationError, Severity: problem.Error, Message: v.Message})
		}
	}
}

// ofIstio reports whether an object is of Istio's kinds, which the validation webhook reviews.
func ofIstio(id object.ID) bool { return strings.HasSuffix(id.Group, ".istio.io") }

// schemaCode returns the code that Istio's webhook uses for an error or a warning about an object of Istio's kinds. It
// is for problems whose field Analyzer is empty. If the webhook has no code for the problem, the result is "".
func schemaCode(p object.Problem) problem.Analyzer {
	switch {
	case !ofIstio(p.ID):
	case p.Severity == problem.Error && (p.Code == problem.Invalid || p.Code == problem.Required):
		return problem.SchemaValidationError
	case p.Severity == problem.Warning && (p.Code == problem.Invalid || p.Code == problem.Required || p.Code == problem.NoEffect):
		return problem.SchemaWarning
	}
	return ""
}
