// java -cp 'amqp-client.jar:slf4j-api.jar' Failover.java ADDRESSES QUEUE COUNT
// Publishes COUNT messages, each until it is confirmed, and consumes them.  Prints what happens.

import com.rabbitmq.client.*;
import java.util.Set;
import java.util.concurrent.*;

public class Failover {
    public static void main(String[] words) throws Exception {
        String queue = words[1];
        int count = Integer.parseInt(words[2]);
        ConnectionFactory factory = new ConnectionFactory();
        factory.setAutomaticRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(100); // ms between two rounds; 5000 by default
        factory.setRequestedHeartbeat(1); // s; a hung broker is given up after two of them
        factory.setConnectionTimeout(1000); // ms for one address
        factory.setHandshakeTimeout(2000); // ms; a hung broker accepts, and says nothing
        Connection connection = factory.newConnection(Address.parseAddresses(words[0]));

        Set<String> received = ConcurrentHashMap.newKeySet();
        Channel consuming = connection.createChannel();
        consuming.basicQos(100);
        consuming.basicConsume(queue, false, (tag, delivery) -> {
            received.add(new String(delivery.getBody()));
            consuming.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }, tag -> {});

        Channel publishing = connection.createChannel();
        publishing.confirmSelect();
        for (int number = 0; number < count; number++) {
            String body = Integer.toString(number);
            while (true) {
                try {
                    publishing.basicPublish("", queue, true, MessageProperties.PERSISTENT_BASIC, body.getBytes());
                    publishing.waitForConfirmsOrDie(5000);
                    break;
                } catch (ShutdownSignalException | java.io.IOException | TimeoutException error) {
                    Thread.sleep(20); // the library connects again; the message is sent again
                }
            }
            System.out.println("confirmed " + body);
            Thread.sleep(5);
        }
        while (received.size() < count) {
            Thread.sleep(20);
        }
        System.out.println("received " + received.size());
        connection.close(1000);
    }
}
