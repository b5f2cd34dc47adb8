package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// recordedStatus prints the sums (numbers of proxies in each state) that the replicas recorded in etcd. It prints them
// once, or with --watch repeatedly until the context ends. It returns the number of proxies with a refused or withheld
// resource. With --watch it returns 0. Errors: --namespace is set, the control plane lacks the API, no replica answers,
// or the output fails.
func (t *target) recordedStatus(cmd *cobra.Command, f *fleetFlags, format output) (refusing int, err error) {
	if t.namespace != "" {
		return 0, errors.New("--recorded: the sums cover all namespaces: omit --namespace")
	}
	for {
		a, err := askAny[fleetapi.RecordedSums](cmd.Context(), &t.controlPlane, "sums", url.Values{})
		switch {
		case errors.Is(err, errNoAPI):
			return 0, errors.New("--recorded: the control plane's version records no sums")
		case err != nil:
			return 0, err
		}
		r := rows{value: a, table: func(w io.Writer, _ bool) error { return recordedTable(w, a) }}
		for i := range a.Items {
			r.names = append(r.names, a.Items[i].Replica)
		}
		err = format.write(cmd, r)
		if err != nil || !f.watch {
			return a.Sums.Total.Refusing, err
		}
		if !paused(cmd.Context(), watchEvery) {
			return 0, nil
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", time.Now().Format(time.TimeOnly)); err != nil {
			return 0, err
		}
	}
}

// recordedTable prints the sums of the replicas that have not stopped, and then one line for each replica.
func recordedTable(w io.Writer, a fleetapi.Answer[fleetapi.RecordedSums]) error {
	rows := [][]string{{"REPLICA", "STATE", "AGE", "IN SYNC", "BEHIND", "REFUSING"}}
	for i := range a.Items {
		r := &a.Items[i]
		c := r.Sums.Total
		rows = append(rows, []string{show.Printable(r.Replica), show.Printable(r.State), age(r.Age),
			strconv.Itoa(c.InSync), strconv.Itoa(c.Behind), strconv.Itoa(c.Refusing)})
	}
	if err := sumsTable(w, a.Sums); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return show.Table(w, rows)
}

// age formats seconds as a duration, without fractions of a second.
func age(seconds float64) string {
	return (time.Duration(seconds) * time.Second).String()
}

// lastWords describes the sums that a missing replica recorded last. For nil it returns an empty text.
func lastWords(l *fleetapi.Last) string {
	if l == nil {
		return ""
	}
	c := l.Sums.Total
	return fmt.Sprintf("; %s ago it recorded %s proxies: %s in sync, %s behind, %s refusing", age(l.Age),
		show.Thousands(c.Connected()), show.Thousands(c.InSync), show.Thousands(c.Behind), show.Thousands(c.Refusing))
}
