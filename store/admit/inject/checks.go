package inject

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"istio.io/api/annotation"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/scrape"
)

// checked are the annotations whose values end in rules of redirection or in fields of the Pod: one that is wrong refuses the Pod, by name.
// (istio: pkg/kube/inject/validate.go)
var checked = map[string]func(string) error{
	annotation.SidecarInterceptionMode.Name:                   isMode,
	annotation.SidecarStatusPort.Name:                         isPort,
	annotation.SidecarStatusReadinessInitialDelaySeconds.Name: isSeconds,
	annotation.SidecarStatusReadinessPeriodSeconds.Name:       isSeconds,
	annotation.SidecarStatusReadinessFailureThreshold.Name:    isSeconds,
	annotation.SidecarTrafficIncludeOutboundIPRanges.Name:     orAll(isRanges),
	annotation.SidecarTrafficExcludeOutboundIPRanges.Name:     isRanges,
	annotation.SidecarTrafficIncludeInboundPorts.Name:         orAll(isPorts),
	annotation.SidecarTrafficExcludeInboundPorts.Name:         isPorts,
	annotation.SidecarTrafficIncludeOutboundPorts.Name:        orAll(isPorts),
	annotation.SidecarTrafficExcludeOutboundPorts.Name:        isPorts,
	annotation.SidecarNativeSidecar.Name:                      isBool,
	annotation.SidecarAgentLogLevel.Name:                      isLevel,
	annotation.PrometheusMergeMetrics.Name:                    isBool,
	scrape.Annotation:                                         func(v string) error { _, err := scrape.Parse(v); return err },
	annotation.SidecarRewriteAppHTTPProbers.Name:              isBool,
}

// checkAnnotations says everything that is wrong with annotations, in the order of their names.
func checkAnnotations(annotations map[string]string) error {
	var bad []error
	for _, name := range sorted(annotations) {
		if check := checked[name]; check != nil {
			if err := check(annotations[name]); err != nil {
				bad = append(bad, fmt.Errorf("annotation %s: %w", name, err))
			}
		}
	}
	return errors.Join(bad...)
}

func orAll(check func(string) error) func(string) error {
	return func(v string) error {
		if v == "*" {
			return nil
		}
		return check(v)
	}
}

func isMode(v string) error {
	switch v {
	case "REDIRECT", "TPROXY", "NONE":
		return nil
	default:
		return fmt.Errorf("%.100q: want REDIRECT, TPROXY or NONE", v)
	}
}

func isBool(v string) error {
	if _, err := strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%.100q: want true or false", v)
	}
	return nil
}

// isLevel: navarch-agent and pilot-agent end where they are given a level that they do not know.
func isLevel(v string) error {
	_, _, err := obs.Level(v)
	return err
}

func isSeconds(v string) error {
	if _, err := strconv.ParseUint(v, 10, 31); err != nil {
		return fmt.Errorf("%.100q: want a number, 0 or more", v)
	}
	return nil
}

func isPort(v string) error {
	if _, err := strconv.ParseUint(strings.TrimSpace(v), 10, 16); err != nil {
		return fmt.Errorf("%.100q: want a port", v)
	}
	return nil
}

func isPorts(v string) error {
	if strings.TrimSpace(v) == "" {
		return nil
	}
	for p := range strings.SplitSeq(v, ",") {
		if err := isPort(p); err != nil {
			return err
		}
	}
	return nil
}

func isRanges(v string) error {
	if v == "" {
		return nil
	}
	for cidr := range strings.SplitSeq(v, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(cidr)); err != nil {
			return fmt.Errorf("%.100q: want CIDR ranges, as 10.0.0.0/8,fd00::/8", cidr)
		}
	}
	return nil
}
