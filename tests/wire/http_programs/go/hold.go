// Holds an AlterPartition, kills a broker, releases, and reads the ISR: over HTTP, with the standard library.
// Prints the ISR before the kill, while the request is held, and after its release, as one line of JSON.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"
)

var api, token string

func read(directory, name string) string {
	data, err := os.ReadFile(directory + "/" + name)
	if err != nil {
		log.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// call sends a request and stores the answer in found, unless that is nil.
func call(method, path string, body any, found any) {
	var data io.Reader
	if body != nil {
		encoded, _ := json.Marshal(body)
		data = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, api+path, data)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	content, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		log.Fatalf("%s %s: %s", method, path, content)
	}
	if found != nil {
		if err := json.Unmarshal(content, found); err != nil {
			log.Fatal(err)
		}
	}
}

// partition returns the leader and the ISR of partition 0.
func partition(topic string) (leader int, isr []int) {
	var state struct {
		Topics map[string]struct{ Partitions [][]json.RawMessage }
	}
	call("GET", "/api/state", nil, &state)
	row := state.Topics[topic].Partitions[0]
	if json.Unmarshal(row[0], &leader) != nil || json.Unmarshal(row[4], &isr) != nil {
		log.Fatalf("not a partition: %s", row)
	}
	slices.Sort(isr)
	return leader, isr
}

func main() {
	directory := os.Args[1]
	api, token = read(directory, "http-address"), read(directory, "http-token")
	call("POST", "/api/topics", map[string]any{"name": "go", "partitions": 1, "replication_factor": 3}, nil)
	leader, before := partition("go")
	killed := 3
	if leader == 3 {
		killed = 2
	}
	var held struct {
		Ok struct {
			Node string
			Rule int
		}
	}
	hold := map[string]any{"node": "controller-100", "action": "hold", "api": "ALTER_PARTITION"}
	call("POST", "/api/rules", hold, &held)
	rule := fmt.Sprintf("/api/rules/%s/%d", held.Ok.Node, held.Ok.Rule)
	call("POST", fmt.Sprintf("/api/nodes/broker-%d/kill", killed), nil, nil)
	call("POST", fmt.Sprintf("/api/nodes/broker-%d/start", killed), nil, nil)
	call("GET", rule+"/wait?hits=1&seconds=60", nil, nil)
	_, during := partition("go")
	call("DELETE", rule, nil, nil)
	_, after := partition("go")
	for len(after) < 3 {
		_, after = partition("go")
	}
	line, _ := json.Marshal(map[string]any{"before": before, "killed": killed, "during": during, "after": after})
	fmt.Println(string(line))
}
