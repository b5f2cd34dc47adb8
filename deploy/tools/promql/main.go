// Command promql parses PromQL expressions, a JSON object of texts by name, and prints the series that each one
// selects: {NAME: [{"metric": METRIC, "labels": [LABEL]}]}. The labels are those by which the expression selects,
// groups or joins. An expression that cannot be parsed ends the command with exit code 1. With -evaluate it also reads
// metrics pages, and prints the values of the expressions (evaluate.go).
//
// It is a separate module, so that Prometheus is not a dependency of Navarch.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// series is one selector of an expression.
type series struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-evaluate" {
		if err := evaluate(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "promql:", err)
			os.Exit(1)
		}
		return
	}
	var expressions map[string]string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
	all, failed := map[string][]series{}, false
	for name, text := range expressions {
		read, err := seriesOf(text)
		if err != nil {
			fmt.Fprintf(os.Stderr, "promql: %s: %v\n", name, err)
			failed = true
		}
		all[name] = read
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil || failed {
		os.Exit(1)
	}
}

// seriesOf returns the series of an expression. A label by which it groups or joins counts for each of its series. It
// returns the parser's error.
func seriesOf(text string) (all []series, err error) {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return nil, err
	}
	var by []string
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			s := series{Metric: n.Name}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName {
					s.Labels = append(s.Labels, m.Name)
				}
			}
			all = append(all, s)
		case *parser.AggregateExpr:
			by = append(by, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				by = append(by, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for i := range all {
		all[i].Labels = append(all[i].Labels, by...)
		slices.Sort(all[i].Labels)
		all[i].Labels = slices.Compact(all[i].Labels)
	}
	return all, nil
}
