package e2e

import (
	"math"
	"slices"
	"testing"
	"time"
)

// autoscaler implements the published algorithm of Kubernetes' HorizontalPodAutoscaler for metrics of type Pods with an
// average value (https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/). It has no clock and no
// cluster.
type autoscaler struct {
	targets    []target
	tolerance  float64       // the number stays if the ratio differs from 1 by at most this; 0.1 by default
	window     time.Duration // scaling down uses the greatest recommendation within this time; 300 s by default
	least      int
	most       int
	recommends []recommendation
}

// target is the target of a metric's average over all Pods.
type target struct {
	metric  string
	average float64
}

type recommendation struct {
	at       time.Time
	replicas int
}

// step receives each metric of each Pod (NaN for a Pod without the metric, which is not ready), and returns the number
// of Pods: the largest number that a metric requires. A metric without any value is unknown, and the number does not
// fall then.
func (a *autoscaler) step(now time.Time, metrics [][]float64) int {
	current, want, blind := len(metrics[0]), 0, false
	for i, pods := range metrics {
		n, ok := a.ask(pods, a.targets[i].average)
		want, blind = max(want, n), blind || !ok
	}
	if blind && want < current {
		return current // no recommendation either
	}
	want = min(max(want, a.least), a.most)
	a.recommends = append(a.recommends, recommendation{now, want})
	a.recommends = slices.DeleteFunc(a.recommends, func(r recommendation) bool { return now.Sub(r.at) > a.window })
	for _, r := range a.recommends {
		if r.replicas > want {
			want = min(r.replicas, max(current, want)) // earlier recommendations do not increase the number
		}
	}
	return want
}

// content reports whether the algorithm required exactly this number of Pods throughout its window.
func (a *autoscaler) content(replicas int) bool {
	return !slices.ContainsFunc(a.recommends, func(r recommendation) bool { return r.replicas != replicas })
}

// ask returns the number of Pods that one metric requires; false: no Pod has the metric.
func (a *autoscaler) ask(pods []float64, average float64) (int, bool) {
	current, sum, have := len(pods), 0., 0
	for _, v := range pods {
		if !math.IsNaN(v) {
			sum, have = sum+v, have+1
		}
	}
	if have == 0 {
		return 0, false
	}
	ratio := sum / float64(have) / average
	if missing := current - have; missing > 0 { // missing Pods count as idle if the number would grow, and as at the target if it would shrink
		if ratio > 1 {
			ratio = max(1, sum/float64(current)/average)
		} else {
			ratio = min(1, (sum+float64(missing)*average)/float64(current)/average)
		}
	}
	if math.Abs(ratio-1) <= a.tolerance {
		return current, true
	}
	return int(math.Ceil(float64(current) * ratio)), true
}

// The formula has the results of the examples in its description.
func TestAutoscalerFormula(t *testing.T) {
	none := math.NaN()
	start := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		before []recommendation
		pods   []float64
		want   int
	}{
		"twice the target doubles":              {nil, []float64{200, 200}, 4},
		"half of it halves":                     {nil, []float64{50, 50, 50, 50}, 2},
		"within the tolerance":                  {nil, []float64{109, 109}, 2},
		"just beyond":                           {nil, []float64{111, 111}, 3},
		"a pod that is not ready does not grow": {nil, []float64{190, none}, 2},
		"nor does it shrink":                    {nil, []float64{50, none}, 2},
		"not all are ready, and more are due":   {nil, []float64{400, none}, 4},
		"nobody is ready":                       {nil, []float64{none, none}, 2},
		"it shrinks when the window is over":    {[]recommendation{{start.Add(-11 * time.Second), 4}}, []float64{50, 50, 50, 50}, 2},
		"not before":                            {[]recommendation{{start.Add(-9 * time.Second), 4}}, []float64{50, 50, 50, 50}, 4},
		"but as far as was recommended":         {[]recommendation{{start.Add(-9 * time.Second), 3}}, []float64{50, 50, 50, 50}, 3},
		"bounds":                                {nil, []float64{9000}, 5},
	} {
		a := &autoscaler{targets: []target{{"", 100}}, tolerance: .1, window: 10 * time.Second, least: 1, most: 5, recommends: c.before}
		if got := a.step(start, [][]float64{c.pods}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Of several metrics the one that requires the most replicas decides. While a metric is missing, the number may grow,
// but not shrink.
func TestAutoscalerTakesTheGreatest(t *testing.T) {
	none := math.NaN()
	for name, c := range map[string]struct {
		hundred, ten []float64 // the targets
		want         int
	}{
		"the first asks for more":                            {[]float64{200, 200}, []float64{10, 10}, 4},
		"the second does":                                    {[]float64{100, 100}, []float64{20, 20}, 4},
		"both do":                                            {[]float64{150, 150}, []float64{20, 20}, 4},
		"one would shrink, one would stay":                   {[]float64{50, 50, 50, 50}, []float64{10, 10, 10, 10}, 4},
		"one would shrink, one would grow":                   {[]float64{50, 50, 50, 50}, []float64{12, 12, 12, 12}, 5},
		"both would shrink":                                  {[]float64{50, 50, 50, 50}, []float64{7, 7, 7, 7}, 3},
		"nothing is waited for":                              {[]float64{50, 50, 50, 50}, []float64{0, 0, 0, 0}, 2},
		"one cannot be had, the other would shrink":          {[]float64{50, 50, 50, 50}, []float64{none, none, none, none}, 4},
		"nor the other way round":                            {[]float64{none, none, none, none}, []float64{5, 5, 5, 5}, 4},
		"one cannot be had, the other would stay":            {[]float64{none, none}, []float64{10, 10}, 2},
		"one cannot be had, the other grows":                 {[]float64{none, none}, []float64{20, 20}, 4},
		"one pod does not have one, and both would shrink":   {[]float64{50, 50, 50, 50}, []float64{2, 2, 2, none}, 2},
		"one pod does not have one, and that holds the rest": {[]float64{20, 20, 20, 20}, []float64{1, 1, none, none}, 3},
		"none can be had":                                    {[]float64{none, none}, []float64{none, none}, 2},
	} {
		a := &autoscaler{targets: []target{{"", 100}, {"", 10}}, tolerance: .1, window: 10 * time.Second, least: 1, most: 5}
		if got := a.step(time.Unix(1e9, 0), [][]float64{c.hundred, c.ten}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	// A metric without a decision recommends nothing: neither the present number, nor that of the other metric.
	a := &autoscaler{targets: []target{{"", 100}, {"", 10}}, tolerance: .1, window: 10 * time.Second, least: 1, most: 5}
	a.step(time.Unix(1e9, 0), [][]float64{{50, 50}, {none, none}})
	if len(a.recommends) != 0 {
		t.Errorf("it recommends %v", a.recommends)
	}
}
