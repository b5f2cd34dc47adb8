package analyze

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Recorded contains the data for an analysis that a report of a control plane has (navarchctl bug-report).
type Recorded struct {
	Records *mirror.Snapshot // the records of the store; nil: the report lacks them
	Known   []Finding        // the problems that the leader and the replicas had found
	// Patches are those of Input.Patches. It is nil if no proxy was connected, or if the report lacks a replica.
	Patches []inspect.Patch
}

// onRecords are the checks that need records alone, except those that the leader or the replicas make too. The problems
// in a report contain the findings of the latter.
var onRecords = []func(*world){
	portNames, inconsistentServices, recordedRouters, portSelectors, uncheckedServers, ingressSubsets, relativePatches, gatewaySelectors,
	closedPolicies, imports, authorities, strictServers, unreadyServices, idleImports, patchedImports, multipliers, overBudget, patches,
}

// recordedRouters reports certificates that several Gateways of a router name, and those that end.
func recordedRouters(w *world) {
	w.routers = w.findRouters()
	certificates(w)
}

// The reasons for which a code is not checked on a report.
const (
	needsObjects = "they need fields that no record has, such as labels of Namespaces, containers of Pods, annotations, " +
		"status and managedFields"
	needsReplicas = "the report lacks a replica, its patches, or any proxy"
	onlySecrets   = "of root certificates in ConfigMaps, which no record has; those in Secrets are checked"
)

// unrecorded has the codes that are not checked on a report, with the reason, beside those of Recorded.Unchecked.
var unrecorded = map[problem.Analyzer]string{
	problem.NamespaceNotInjected:                   needsObjects,
	problem.PodMissingProxy:                        needsObjects,
	problem.DeploymentAssociatedToMultipleServices: needsObjects,
	problem.NamespaceMultipleInjectionLabels:       needsObjects,
	problem.InvalidAnnotation:                      needsObjects,
	problem.UnknownMeshNetworksServiceRegistry:     needsObjects,
	problem.DeprecatedAnnotation:                   needsObjects,
	problem.AlphaAnnotation:                        needsObjects,
	problem.DeploymentConflictingPorts:             needsObjects,
	problem.InvalidWebhook:                         needsObjects,
	problem.ImageAutoWithoutInjectionWarning:       needsObjects,
	problem.ImageAutoWithoutInjectionError:         needsObjects,
	problem.NamespaceInjectionEnabledByDefault:     needsObjects,
	problem.UnsupportedGatewayAPIVersion:           needsObjects,
	problem.PodsIstioProxyImageMismatchInNamespace: needsObjects,
	problem.InvalidGatewayCredential:               needsObjects,
	problem.NegativeConditionStatus:                needsObjects,
	problem.FutureUnsupportedGatewayAPIVersion:     needsObjects,
	problem.JwksUriFetchUnrestricted:               needsObjects,
	problem.AuthorityEnds:                          onlySecrets,
	problem.GatewayAPICRDVersionBelowMinimum:       needsObjects,
	problem.SeveralWriters:                         needsObjects,
	problem.CertificateNotRenewed:                  needsObjects,
}

// Unchecked returns the codes that are not checked on a report, in order, by the reason.
func (r Recorded) Unchecked() map[string][]problem.Analyzer {
	all := map[string][]problem.Analyzer{}
	for _, code := range Codes() {
		reason := unrecorded[code]
		switch {
		case r.Records == nil && ReporterOf(code) == Analyze:
			reason = "the report has no records"
		case code == problem.PatchWithoutEffect && r.Patches == nil:
			reason = needsReplicas
		}
		if reason != "" {
			all[reason] = append(all[reason], code)
		}
	}
	return all
}

// RunRecorded returns the findings of a report, each once, in the order of Compare: the known ones, and those about
// the records. The latter have the codes that only this package reports (ReporterOf), except Unchecked. Annotations
// suppress nothing, because records lack them. A report is not trusted: records that cannot be analysed are an error.
func RunRecorded(r Recorded, c Config) (all []Finding, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			all, err = nil, fmt.Errorf("the records of the report cannot be analysed: %v", fault)
		}
	}()
	w := index(Input{Patches: r.Patches, Unread: map[string]string{"Secret": needsObjects},
		Cluster: map[string]bool{"Pod": true, "EndpointSlice": true}}, c)
	for _, f := range r.Known {
		f.id = w.named(f.Object)
		w.findings = append(w.findings, f)
	}
	if r.Records == nil {
		return w.result(), nil
	}
	for _, kind := range model.Kinds() {
		w.setRecords(slices.Collect(r.Records.All(kind)))
	}
	w.known, _ = resolve.Snapshot(r.Records)
	for _, check := range onRecords {
		check(w)
	}
	return w.result(), nil
}
