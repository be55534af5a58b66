// A project's test with Testcontainers' module for Kafka, with the image's name changed: node kafka.mjs IMAGE:TAG
// The module needs a tag that is a version of Confluent's image from 8.0.0 on.
import assert from "node:assert/strict";
import { KafkaContainer } from "@testcontainers/kafka";
import { Kafka, logLevel } from "kafkajs";

const container = await new KafkaContainer(process.argv[2]).withKraft().start();
try {
  const brokers = [`${container.getHost()}:${container.getMappedPort(9093)}`];
  const kafka = new Kafka({ clientId: "test", brokers, logLevel: logLevel.NOTHING });
  const written = Array.from({ length: 100 }, (_, number) => `record ${number}`);

  const admin = kafka.admin();
  await admin.connect();
  assert.equal(await admin.createTopics({ topics: [{ topic: "orders", numPartitions: 1 }] }), true);
  await admin.disconnect();

  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: written.map((value) => ({ value })) });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "readers" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const read = await new Promise((resolve) => {
    const values = [];
    consumer.run({
      eachMessage: async ({ message }) => {
        if (values.push(message.value.toString()) === written.length) resolve(values);
      },
    });
  });
  await consumer.disconnect();
  assert.deepEqual(read, written);
  console.log(`read ${read.length} records`);
} finally {
  await container.stop();
}
