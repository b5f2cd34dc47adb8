package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// applyStockVariables applies the environment variables of Istio's agents (istio: pilot/cmd/pilot-agent/options) that
// do not correspond to exactly one flag. The function given reports whether a flag was on the command line. A flag on
// the command line has precedence. The error names each variable with a value that is not valid.
func (o *options) applyStockVariables(id *identity, given func(flag string) bool) error {
	var bad []error
	apply := func(name string, set func(string) error) {
		if v := id.lookup(name); v != "" {
			if err := set(v); err != nil {
				bad = append(bad, fmt.Errorf("environment %s=%q: %w", name, v, err))
			}
		}
	}
	port := func(flag string, address *string) func(string) error {
		return func(v string) error {
			if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 {
				return errors.New("want a port, 1 to 65535")
			}
			if host, _, err := net.SplitHostPort(*address); err == nil && !given(flag) {
				*address = net.JoinHostPort(host, v)
			}
			return nil
		}
	}
	apply("ENVOY_STATUS_PORT", port("status-addr", &o.statusAddr))
	apply("ENVOY_PROMETHEUS_PORT", port("envoy-metrics-addr", &o.metricsAddr))
	apply("SECRET_TTL", func(v string) (err error) {
		if o.certTTL, err = time.ParseDuration(v); err == nil && o.certTTL < time.Second {
			err = errors.New("want at least one second")
		}
		return err
	})
	apply("SECRET_GRACE_PERIOD_RATIO", func(v string) error {
		left, err := strconv.ParseFloat(v, 64)
		if err == nil && !(left > 0 && left < 1) {
			err = errors.New("want a fraction of a certificate's lifetime, above 0 and below 1")
		}
		o.renewAt = 1 - left
		return err
	})
	if ca := id.lookup("CA_ROOT_CA"); ca != "" && id.lookup("XDS_ROOT_CA") == "" && !given("xds-root-cert") {
		o.rootCert = ca
	}
	return errors.Join(bad...)
}
