package inject

import (
	"reflect"
	"strings"
	"text/template"
)

// boundCounts makes functions of sprig whose result grows with a number refuse large numbers in advance.
func boundCounts(all template.FuncMap) {
	number := func(v reflect.Value) int {
		for v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		switch {
		case v.CanInt():
			return int(v.Int())
		case v.CanUint():
			return int(v.Uint())
		case v.CanFloat():
			return int(v.Float())
		default:
			return 0 // a text, which sprig either refuses or reads as 0
		}
	}
	abs := func(n int) int { return max(n, -n, 0) }
	all["until"] = atMost(all["until"], func(a []reflect.Value) int { return abs(number(a[0])) })
	all["untilStep"] = atMost(all["untilStep"], func(a []reflect.Value) int { return abs(number(a[0])) + abs(number(a[1])) })
	if seq, is := all["seq"].(func(...int) string); is {
		all["seq"] = func(bounds ...int) (string, error) {
			for _, n := range bounds {
				if abs(n) > maxElements {
					return "", errLarge
				}
			}
			return seq(bounds...), nil
		}
	}
	times := func(n, size int) int { return min(abs(n), maxElements+1) * max(1, min(size, maxText)) }
	all["repeat"] = atMost(all["repeat"], func(a []reflect.Value) int { return times(number(a[0]), a[1].Len()) })
	all["nindent"] = atMost(all["nindent"], func(a []reflect.Value) int { return times(number(a[0]), 1+strings.Count(a[1].String(), "\n")) })
}
