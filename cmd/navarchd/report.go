package main

import (
	"os"
	"slices"

	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/store/cut"
	"navarch.io/navarch/store/obs"
)

// statedFlags lists the flags that were set, as --name=value. cut.Cut replaces values that look like credentials.
func statedFlags(flags *pflag.FlagSet) (all []string) {
	flags.Visit(func(f *pflag.Flag) {
		value := cut.String(f.Value.String())
		if cut.Key(f.Name) {
			value = cut.Cut
		}
		all = append(all, "--"+f.Name+"="+value)
	})
	return all
}

// stated lists the variables that are set in the environment and that this process reads, as NAME=value, sorted.
// cut.Cut replaces values that look like credentials.
func (e *environment) stated(lookup func(string) (string, bool)) (all []string) {
	for name := range e.reads {
		value, set := lookup(name)
		if !set {
			continue
		}
		if value = cut.String(value); cut.Key(name) {
			value = cut.Cut
		}
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}

// collector returns a Collector, which gathers this process's data for diagnostic reports. deliveries is nil without
// role xds.
func (a *assembly) collector(deliveries *ledger.Ledger) *collect.Collector {
	c := a.config
	all := collect.Collector{Pages: a.pages, Lines: c.lines, Metrics: obs.Metrics(),
		Facts: collect.Build(report.Facts{Name: c.processName(), Zone: c.zone, Roles: c.roles, Flags: c.stated,
			Environment: c.env.stated(os.LookupEnv), Cluster: c.cluster, Normal: c.normal()})}
	if deliveries != nil {
		all.Changes = deliveries.Changes
	}
	return collect.New(all)
}
